"""Which configurations none improves upon, by how much, and how sure that is: NumPy and moocore, nothing of runs."""
