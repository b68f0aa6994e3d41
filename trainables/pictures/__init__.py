"""Where the pictures come from, and how they reach the training loop."""
