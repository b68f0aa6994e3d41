"""Training one configuration of a run in full."""
