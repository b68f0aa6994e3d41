"""Access to the machine that runs a trial: cores, devices, memory, peak rates, and caches on disk."""
