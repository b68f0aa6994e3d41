"""A sketch of points in text, in so many lines of so many columns: small ones as braille dots, others as letters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from search.text.wording import number

DOT = "⠂"  # the mark of a point that is drawn as a braille dot, eight of which share a place
FRAME = {"side": "│", "corner": "└", "floor": "─"}
PLAIN_FRAME = {"side": "|", "corner": "+", "floor": "-"}  # of a terminal that knows ASCII alone; so does PLAIN_DOT
PLAIN_DOT = "."
LEAST_COLUMNS, LEAST_ROWS = 8, 2  # of the area within the axes
_BRAILLE = 0x2800
_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of a braille letter's dots, by row and column


class Point(NamedTuple):
    """Where, and with which letter; DOT: as a small dot."""

    x: float
    y: float
    mark: str


@dataclass(frozen=True)
class Axis:
    """`ends`: the least and the largest value, None: as the points have them. A logarithm takes positive ones."""

    label: str
    log: bool = False
    ends: tuple[float, float] | None = None


def sketch(points: Sequence[Point], x: Axis, y: Axis, width: int, height: int, ascii_only: bool = False) -> list[str]:
    """At most `height` lines of at most `width` columns, axes and labels included; none where there is no room.

    A letter hides the dots in its place, and a later one hides an earlier one. Points beyond the axes are left out.
    """
    points = [p for p in points if math.isfinite(p.x) and math.isfinite(p.y)]
    across, upward = _settled(x, [p.x for p in points]), _settled(y, [p.y for p in points])
    if across is None or upward is None:
        return []
    (left, right), (bottom, top) = ([number(end) for end in _ends(axis)] for axis in (across, upward))
    margin = max(len(bottom), len(top))
    columns, rows = width - margin - 2, height - 3
    if columns < max(LEAST_COLUMNS, len(left) + len(right) + 2) or rows < LEAST_ROWS:
        return []
    frame = PLAIN_FRAME if ascii_only else FRAME
    area = _area(points, across, upward, columns, rows, ascii_only)
    named = {0: top, rows - 1: bottom}
    lines = [f"{named.get(i, ''):>{margin}} {frame['side']}{line}".rstrip() for i, line in enumerate(area)]
    room = columns - len(left) - len(right) - 2
    below, within = (x.label.center(room), "") if len(x.label) <= room else (" " * room, f" {x.label} "[:columns])
    floor = f"{'':>{margin}} {frame['corner']}{within.center(columns, frame['floor'])}"
    return [y.label[:width], *lines, floor, f"{'':>{margin}}  {left} {below} {right}"]


def _settled(axis: Axis, values: Sequence[float]) -> Axis | None:
    """With ends that differ, and a logarithm only where all it covers is positive; None: there are no values."""
    if not values and axis.ends is None:
        return None
    low, high = axis.ends or (min(values), max(values))
    if low == high:
        reach = abs(low) / 10 or 1.0
        low, high = low - reach, high + reach
    return Axis(axis.label, axis.log and low > 0, (low, high))


def _ends(axis: Axis) -> tuple[float, float]:
    assert axis.ends is not None
    return axis.ends


def _area(points: Sequence[Point], x: Axis, y: Axis, columns: int, rows: int, ascii_only: bool) -> list[str]:
    """What is within the axes, line by line from the top."""
    dots = [[0] * columns for _ in range(rows)]
    letters: dict[tuple[int, int], str] = {}
    for point in points:
        column, row = _place(point.x, x, 2 * columns), _place(point.y, y, 4 * rows)
        if column is None or row is None:
            continue
        row = 4 * rows - 1 - row
        if point.mark == DOT:
            dots[row // 4][column // 2] |= _BITS[row % 4][column % 2]
        else:
            letters[row // 4, column // 2] = point.mark

    def drawn(row: int, column: int) -> str:
        dot = dots[row][column]
        small = (PLAIN_DOT if ascii_only else chr(_BRAILLE + dot)) if dot else " "
        return letters.get((row, column), small)

    return ["".join(drawn(row, column) for column in range(columns)) for row in range(rows)]


def _place(value: float, axis: Axis, places: int) -> int | None:
    """Which of so many places along the axis; None: beyond its ends."""
    low, high = _ends(axis)
    if not low <= value <= high:
        return None
    if axis.log:
        value, low, high = math.log(value), math.log(low), math.log(high)
    return min(places - 1, math.floor((value - low) / (high - low) * places))
