"""Numbers, counts and lists of words as text."""

from __future__ import annotations

import math
from collections.abc import Sequence

LARGE = 1e12  # numbers from here on are written with an exponent
SAYS_NOTHING = 10.0  # ratio of the ends of an interval of a ratio
PLUS_MINUS = "±: half of a 95% interval."
UNKNOWN_INTERVAL = "A question mark: no interval is known, or it is as large as the value."


def unknown_intervals(text: str) -> list[str]:
    """Return what the question marks of `plus_minus` in a text mean; empty: it has none."""
    return [UNKNOWN_INTERVAL] if "± ?" in text else []


def format_number(value: float) -> str:
    """Return a number with its significant digits, as in 0.7124, 12.3, 5,234; a dash if it is not finite."""
    if not math.isfinite(value):
        return "–"
    size = abs(value)
    if size >= LARGE:
        return f"{value:.3g}"
    if size >= 100 or value == 0:
        return f"{value:,.0f}"
    if size < 0.001:
        return f"{value:.1e}"
    return f"{value:.{1 if size >= 10 else 2 if size >= 1 else 4}f}"


def plus_minus(value: float, half_width: float | None, least: float = 0.0) -> str:
    """Return a value with half of its interval, as in `352 ± 4.1`.

    `least`: the smallest value that is possible; an interval that reaches it says nothing, as in `352 ± ?`. None: the
    value is exact, or whether it has an interval is not known.
    """
    if half_width is None or math.isnan(half_width):
        return format_number(value)
    if math.isinf(half_width) or value - half_width <= least < value:
        return f"{format_number(value)} ± ?"
    return f"{format_number(value)} ± " + (f"{half_width:,.0f}" if half_width >= 10 else f"{half_width:.2g}")


def format_ratio(ratio: float, low: float, high: float) -> str:
    """Return a ratio with its 95% interval, as in `1.28 (1.25 to 1.31)`; without one that is too narrow to be seen.

    An interval around 1 that reaches over `SAYS_NOTHING` times its lower end is a question mark, as in `1.28 ± ?`.
    """
    if low < 1 < high and high > SAYS_NOTHING * low:
        return f"{_factor(ratio)} ± ?"
    ends = _factor(low), _factor(high)
    return _factor(ratio) + (f" ({' to '.join(ends)})" if ends[0] != ends[1] else "")


def _factor(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.2g}"


def format_difference(mean: float, low: float, high: float, in_points: bool) -> str:
    """Return a difference with its 95% interval, as in `0.8 points lower (0.2 to 1.4)`; `in_points`: of fractions.

    An interval around zero names both sides: `0.3 points higher (0.5 lower to 1.1 higher)`.
    """
    scale, unit = (100.0, " points") if in_points else (1.0, "")
    digits = max(0, 2 - math.floor(math.log10(max(abs(mean), abs(low), abs(high)) or 1.0))) if not in_points else 2
    size, near, far = (f"{abs(scale * value):,.{digits}f}" for value in (mean, *sorted((low, high), key=abs)))
    text = f"{size}{unit} {_side(mean)}" if size.strip("0.") else "equal"
    if far == near == size:
        return text
    if low < 0 < high:
        ends = [f"{abs(scale * value):,.{digits}f} {_side(value)}" for value in (low, high)]
        return f"{text} ({' to '.join(ends)})"
    return f"{text} ({near} to {far})"


def _side(value: float) -> str:
    return "higher" if value > 0 else "lower"


def format_percent(fraction: float) -> str:
    """Return a percentage, as in `62%`; a dash if the fraction is not finite."""
    return f"{fraction:.0%}" if math.isfinite(fraction) else "–"


def format_probability(probability: float) -> str:
    """Return a probability as a percentage; `>99%` or `<1%` where it would be rounded to certainty."""
    text = format_percent(probability)
    if text == "100%" and probability < 1:
        return ">99%"
    return "<1%" if text == "0%" and probability > 0 else text


def plural(number: int, noun: str) -> str:
    """Return a count with its noun, as in `1 trial`, `2 trials`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def first_few(words: Sequence[str], most: int) -> list[str]:
    """Return the first words, at most `most`, and how many more there are, as in `a`, `b`, `3 more`."""
    return [*words[:most], *([f"{len(words) - most} more"] if len(words) > most else [])]


def join_words(words: Sequence[str]) -> str:
    """Return the words as a list, as in `a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
