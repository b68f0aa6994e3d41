"""What a configuration will take before it runs: memory and time."""
