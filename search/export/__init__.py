"""A run in the tools people have."""
