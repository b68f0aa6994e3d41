"""Predictions for a configuration before it runs: memory and training cost."""
