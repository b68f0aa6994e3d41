"""Words, numbers, tables and sketches as text: one way for the terminal, the summary and the messages."""
