"""Measurements of a trial: rate, stage times, memory, telemetry, and the verdict drawn from them."""
