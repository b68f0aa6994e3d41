"""Where a value stands along an axis, in percent, and which values are marked on it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MARGIN = 0.05  # of the range, left free at both ends
LARGEST = 1e100  # on a log axis


@dataclass(frozen=True)
class Axis:
    """From `low` to `high`; on a log axis both are above zero."""

    low: float
    high: float
    log: bool = False
    whole: bool = False  # only whole numbers have a meaning

    def percent(self, value: float) -> float:
        """0 at the low end, 100 at the high end; what lies beyond is put at the end."""
        if self.log:
            value, low, high = (math.log(max(v, self.low)) for v in (value, self.low, self.high))
        else:
            low, high = self.low, self.high
        return round(100 * min(max((value - low) / (high - low), 0.0), 1.0), 2)

    def ticks(self, most: int = 6) -> list[float]:
        """Round values within the axis, at most that many."""
        if self.log:
            for leading in ((1, 2, 5), (1, 3), (1,)):
                ticks = [v for v in _of_decades(self.low, self.high, leading) if self.low <= v <= self.high]
                if 3 <= len(ticks) <= most:
                    return ticks
        return _round_steps(self.low, self.high, most, self.whole)


def axis(values: Iterable[float], log: bool = False, whole: bool = False) -> Axis:
    """One that holds all the finite values, with some room; log only where all are above zero and of sense."""
    known = [v for v in values if math.isfinite(v)] or [0.0, 1.0]
    low, high = min(known), max(known)
    if log and low > 1 / LARGEST and high < LARGEST:
        room = max((high / low) ** MARGIN, 1.02)
        return Axis(low / room, high * room, True)
    room = (high - low) * MARGIN or abs(high) * MARGIN or 1.0
    return Axis(low - room, high + room, whole=whole)


def tick_label(value: float) -> str:
    """As short as it can be said: 0.55, 2,000, 1e-05."""
    if value and not 1e-4 <= abs(value) < 1e7:
        return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")
    return f"{value:,.10g}"


def thinned(values: Sequence[int], most: int) -> list[int]:
    """At most that many of them, evenly, with both ends."""
    if len(values) <= most:
        return list(values)
    return [values[round(i * (len(values) - 1) / (most - 1))] for i in range(most)]


def _of_decades(low: float, high: float, leading: Sequence[int]) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [float(f"{digit}e{decade}") for decade in decades for digit in leading]


def _round_steps(low: float, high: float, most: int, whole: bool) -> list[float]:
    """Multiples of 1, 2, 2.5 or 5 times a power of ten."""
    rough = max((high - low) / most, 1.0 if whole else 0.0)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(s * power for s in (1, 2, 2.5, 5, 10, 20) if s * power >= rough and not (whole and s * power % 1))
    first, last = math.ceil(low / step), math.floor(high / step)
    return [float(f"{i * step:.10g}") for i in range(first, last + 1)]
