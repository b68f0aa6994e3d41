"""A run as one page: `report.html`, which needs no network, no server and, to be read, no JavaScript."""
