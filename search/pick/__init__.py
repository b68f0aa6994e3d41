"""Choice of a configuration of a run by requirements."""
