"""Layouts of strategies, and communication between the processes of a trial."""
