"""The page of a run, `report.html`: one file that needs no network and no server, and no JavaScript to be read."""
