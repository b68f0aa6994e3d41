"""Repeats within one measurement: rates over parts of it that are as long as a probe, from which drift is estimated."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from trainables.measure.throughput import MIN_WINDOWS, Window, rate_of, uncontended

MIN_WINDOWS_PER_PART = 12  # about as many as a probe has
MAX_PARTS = 8  # of one measurement, so that a long training does not dominate the history


def rates_by_part(windows: Sequence[Window], cores: int) -> list[float]:
    """Return the images per second of each part of the measurement that is as long as a probe.

    Only uncontended windows count, because interference is no drift; the list is empty if they are too few.
    """
    counted = uncontended(windows, cores)
    if (n := len(counted)) < MIN_WINDOWS:
        return []
    parts = min(max(n // MIN_WINDOWS_PER_PART, 1), MAX_PARTS)
    return [rate_of(counted[n * i // parts : n * (i + 1) // parts]) for i in range(parts)]


def reference_rate(windows: Sequence[Window], cores: int) -> list[float]:
    """Return reference steps per second, by the median over uncontended windows; empty if they are too few."""
    seconds = [w.reference_seconds for w in uncontended(windows, cores) if w.reference_seconds is not None]
    return [1 / statistics.median(seconds)] if len(seconds) >= MIN_WINDOWS else []
