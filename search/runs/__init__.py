"""List of the runs below a folder: state, front and cost of each, as a table, JSON or a page."""
