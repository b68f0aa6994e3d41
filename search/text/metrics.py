"""Metrics as people read them: label and direction."""

from __future__ import annotations

CONTENDED_MARK = "!"  # behind a rate, in tables with the legend
CONTENDED_LEGEND = "!: measured while other processes used the cores; the true rate may be higher."
CONTENDED = "measured while other processes used the cores, so perhaps too low"  # a rate
ARROWS = {"maximize": "↑", "minimize": "↓"}


def metric_label(metric: str, data_name: str) -> str:
    """Return the metric's name, marked if it was learned from generated images and does not hold for others."""
    learned = any(word in metric for word in ("accuracy", "loss"))
    return f"{metric} (generated)" if learned and data_name == "generated" else metric
