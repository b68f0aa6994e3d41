"""Search over training configurations: proposes trials, runs them, and reports the front."""
