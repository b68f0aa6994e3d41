"""What a run writes down and what is read back: the journal is the truth."""
