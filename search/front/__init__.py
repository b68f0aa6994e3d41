"""Pareto fronts, hypervolume and front probabilities. NumPy and moocore; no knowledge of runs."""
