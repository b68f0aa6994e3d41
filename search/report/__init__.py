"""Report of a run: front, picks, bottlenecks of the trials, and the effect of each setting."""
