"""Metrics as people read them: direction and doubts."""

from __future__ import annotations

from collections.abc import Mapping

CONTENDED_MARK = "!"  # behind a rate, in tables with the legend
CONTENDED = "measured while other processes used the cores; the true rate may be higher"
CONTENDED_LEGEND = f"{CONTENDED_MARK}: {CONTENDED}."
ARROWS = {"maximize": "↑", "minimize": "↓"}


def slowed_windows(metrics: Mapping[str, float], rate: str) -> str | None:
    """Return a sentence on a rate that stands for less than half of the windows, though they were enough for it."""
    counted, left_out = metrics.get("throughput_windows", 0.0), metrics.get("contended_windows", 0.0)
    if metrics.get("contended") or left_out <= counted:
        return None
    share = f"{left_out:,.0f} of {left_out + counted:,.0f} windows"
    return f"Other work slowed {share}: {rate} is the rate in the others, and whole epochs took longer."
