"""Measured advice: which single change of a setting makes a configuration faster."""
