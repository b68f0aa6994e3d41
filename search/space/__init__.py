"""What to search and towards what: a space file, checked, against the machine too."""
