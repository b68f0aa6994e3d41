"""Axes of a chart: positions of values in percent, and round values for ticks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MARGIN = 0.05  # at both ends, as a fraction of the range
LARGEST = 1e100  # on a log axis
LARGEST_DRAWN = 1e300


@dataclass(frozen=True)
class Axis:
    """Axis from `low` to `high`; on a log axis both are above zero."""

    low: float
    high: float
    log: bool = False
    whole: bool = False  # ticks are whole numbers only

    def position(self, value: float) -> float:
        """Percent of the axis, from its low end; a value outside of the axis is clipped to the nearer end."""
        value, low, high = (math.log(max(v, self.low)) if self.log else v for v in (value, self.low, self.high))
        return round(100 * min(max((value - low) / (high - low), 0.0), 1.0), 2)

    def ticks(self, most: int = 6) -> list[float]:
        """Round values within the axis, at most `most` of them."""
        if self.log:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            for leading in ((1, 2, 5), (1, 3), (1,)):
                ticks = [float(f"{digit}e{decade}") for decade in decades for digit in leading]
                ticks = [tick for tick in ticks if self.low <= tick <= self.high]
                if 3 <= len(ticks) <= most:
                    return ticks
            if len(ticks) > most:  # powers of ten
                return ticks[:: math.ceil(len(ticks) / most)]
        # multiples of 1, 2, 2.5 or 5 times a power of ten
        rough = max((self.high - self.low) / most, 1.0 if self.whole else 0.0)
        power = 10.0 ** math.floor(math.log10(rough))
        steps = [factor * power for factor in (1, 2, 2.5, 5, 10, 20)]
        step = next(s for s in steps if s >= rough and not (self.whole and s % 1))
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [float(f"{i * step:.10g}") for i in range(first, last + 1)]


def axis(values: Iterable[float], log: bool = False, whole: bool = False) -> Axis:
    """Return an axis for all finite values with a margin; `log` holds only if all are above zero and not extreme."""
    known = [v for v in values if abs(v) < LARGEST_DRAWN] or [0.0, 1.0]  # not NaN
    low, high = min(known), max(known)
    if log and low > 1 / LARGEST and high < LARGEST:
        room = max((high / low) ** MARGIN, 1.02)
        return Axis(low / room, high * room, True)
    room = (high - low) * MARGIN or abs(high) * MARGIN or 1.0
    return Axis(low - room, high + room, whole=whole)


def tick_label(value: float) -> str:
    """Return a short label: 0.55, 2,000, 1e-5, 1.5e7."""
    if value and not 1e-4 <= abs(value) < 1e7:
        digits, power = f"{value:.3e}".split("e")
        return f"{float(digits):g}e{int(power)}"
    return f"{value:,.10g}"


def thinned(values: Sequence[int], most: int) -> list[int]:
    """Return at most `most` of the values, evenly spaced, including both ends."""
    if len(values) <= most:
        return list(values)
    return [values[round(i * (len(values) - 1) / (most - 1))] for i in range(most)]
