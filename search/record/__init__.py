"""Journal of a run, and everything that is read from it."""
