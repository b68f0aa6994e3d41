"""Scatter plot as text: small points as braille dots, others as letters."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from search.text.numbers import format_number

DOT = "⠂"  # mark of a point that is drawn as a braille dot; eight dots share one character
FRAME = {"side": "│", "corner": "└", "floor": "─"}
PLAIN_FRAME = {"side": "|", "corner": "+", "floor": "-"}  # for a terminal with ASCII only, as is PLAIN_DOT
PLAIN_DOT = "."
LEAST_COLUMNS, LEAST_ROWS = 8, 2  # smallest area within the axes
_BRAILLE = 0x2800
_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # braille dots by row and column
_Scale = tuple[float, float, bool]  # ends, and whether it is logarithmic


class Point(NamedTuple):
    """Position and letter of a point; the mark DOT draws a small dot."""

    x: float
    y: float
    mark: str


@dataclass(frozen=True)
class Axis:
    """Axis with its ends, by default those of the points. A logarithmic axis needs positive ends."""

    label: str
    log: bool = False
    ends: tuple[float, float] | None = None


def scatter_plot(
    points: Sequence[Point], x: Axis, y: Axis, width: int, height: int, ascii_only: bool = False
) -> list[str]:
    """Return at most `height` lines of at most `width` columns, axes and labels included; empty if too small.

    A letter hides the dots at its place, and a later letter hides an earlier one. Points outside the axes are left out.
    """
    points = [p for p in points if math.isfinite(p.x) and math.isfinite(p.y)]
    across, upward = _settled(x, [p.x for p in points]), _settled(y, [p.y for p in points])
    if across is None or upward is None:
        return []
    (left, right), (bottom, top) = ([format_number(end) for end in scale[:2]] for scale in (across, upward))
    margin = max(len(bottom), len(top))
    columns, rows = width - margin - 2, height - 3
    if columns < max(LEAST_COLUMNS, len(left) + len(right) + 2) or rows < LEAST_ROWS:
        return []
    frame = PLAIN_FRAME if ascii_only else FRAME
    marks = _marks(points, across, upward, columns, rows, ascii_only)
    area = ["".join(marks.get((row, column), " ") for column in range(columns)) for row in range(rows)]
    named = {0: top, rows - 1: bottom}
    lines = [f"{named.get(i, ''):>{margin}} {frame['side']}{line}".rstrip() for i, line in enumerate(area)]
    room = columns - len(left) - len(right) - 2
    below, within = (x.label.center(room), "") if len(x.label) <= room else (" " * room, f" {x.label} "[:columns])
    floor = f"{'':>{margin}} {frame['corner']}{within.center(columns, frame['floor'])}"
    return [y.label[:width], *lines, floor, f"{'':>{margin}}  {left} {below} {right}"]


def _settled(axis: Axis, values: Sequence[float]) -> _Scale | None:
    """Return a scale with two different ends, linear if not all values are positive; None without values."""
    if not values and axis.ends is None:
        return None
    low, high = axis.ends or (min(values), max(values))
    if math.isclose(low, high):  # they may differ by a rounding error, of which a logarithm sees nothing
        reach = abs(low) / 10 or 1.0
        low, high = low - reach, high + reach
    return low, high, axis.log and low > 0


def _marks(
    points: Sequence[Point], x: _Scale, y: _Scale, columns: int, rows: int, ascii_only: bool
) -> dict[tuple[int, int], str]:
    """Return the characters within the axes by row, from the top, and column."""
    dots: dict[tuple[int, int], int] = defaultdict(int)
    letters: dict[tuple[int, int], str] = {}
    for point in points:
        column, row = _place(point.x, x, 2 * columns), _place(point.y, y, 4 * rows)
        if column is None or row is None:
            continue
        row = 4 * rows - 1 - row
        if point.mark == DOT:
            dots[row // 4, column // 2] |= _BITS[row % 4][column % 2]
        else:
            letters[row // 4, column // 2] = point.mark
    return {at: PLAIN_DOT if ascii_only else chr(_BRAILLE + bits) for at, bits in dots.items()} | letters


def _place(value: float, scale: _Scale, places: int) -> int | None:
    """Return the index of the value among `places` along the axis; None outside its ends."""
    low, high, log = scale
    if not low <= value <= high:
        return None
    if log:
        value, low, high = math.log(value), math.log(low), math.log(high)
    return min(places - 1, math.floor((value - low) / (high - low) * places))
