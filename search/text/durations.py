"""Durations as text: `4 min 10 s` if measured, `about 4 min` if estimated."""

from __future__ import annotations

import math


def format_duration(seconds: float) -> str:
    """Return a measured duration, as in `8.3 s`, `4 min 10 s`, `2 h 5 min`, `1 h`."""
    if not math.isfinite(seconds):
        return "–"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes_rest = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes_rest, "min"), (rest if not hours else 0, "s"))
    return " ".join(f"{amount} {unit}" for amount, unit in parts if amount)


def rough_duration(seconds: float) -> str:
    """Return an estimated duration with few digits, as in `about 40 s`, `about 4 min`, `about 2.5 h`."""
    if seconds < 90:
        return f"about {max(10, round(seconds, -1)):.0f} s"
    return f"about {seconds / 60:.0f} min" if seconds < 5400 else f"about {seconds / 3600:.1f} h"
