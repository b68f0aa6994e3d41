"""Which configuration of a run to take."""
