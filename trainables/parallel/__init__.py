"""What processes and devices each strategy needs and holds, and how the processes talk."""
