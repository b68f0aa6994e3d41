"""Workloads: what is trained, one module each."""
