"""What to try next and what to stop. No Ray, no clock, no disk."""
