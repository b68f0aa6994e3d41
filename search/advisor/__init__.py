"""Search algorithms: the next configuration, and which trials to stop. No Ray, no clock, no disk."""
