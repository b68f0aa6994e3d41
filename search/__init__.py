"""Decides which training configuration to try next, and what the outcome means."""
