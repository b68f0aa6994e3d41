"""Numbers, durations, settings, tables and plots as text, for the terminal, the summary and messages."""
