"""The machine under a trial: cores, devices, memory, what it can do at most, and what is kept of it."""
