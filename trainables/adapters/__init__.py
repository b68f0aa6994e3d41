"""Callbacks that measure and report trainings of other libraries, in a user's `train(config, trial)`."""
