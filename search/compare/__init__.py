"""Two runs or more beside each other."""
