"""What is said of a run: its front, its picks, what bounds its trials, what each setting does."""
