"""What one measurement tells about the machine's drift: its levels, each as if a probe had measured it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from trainables.measure.throughput import MIN_WINDOWS, Window, quiet, rate_of

WINDOWS_OF_LEVEL = 12  # at least: a probe has about as many
MOST_PARTS = 8  # of one measurement: one long training is not all there is to know


def levels(windows: Sequence[Window], cores: int) -> list[float]:
    """Images per second of each part of the measurement that is as long as a probe.

    Of quiet windows alone, since what others do is no drift; nothing where these are too few.
    """
    undisturbed = quiet(windows, cores)
    if (n := len(undisturbed)) < MIN_WINDOWS:
        return []
    parts = min(max(n // WINDOWS_OF_LEVEL, 1), MOST_PARTS)
    return [rate_of(undisturbed[n * i // parts : n * (i + 1) // parts]) for i in range(parts)]


def yardstick_level(windows: Sequence[Window], cores: int) -> list[float]:
    """Steps per second of the yardstick, by the median over quiet windows; nothing where these are too few."""
    seconds = [w.yardstick for w in quiet(windows, cores) if w.yardstick is not None]
    return [1 / statistics.median(seconds)] if len(seconds) >= MIN_WINDOWS else []
