"""Epochs at which trials are judged by their curves, and the scale on which curves are compared."""

import math
from functools import cache

GROWTH = 1.6
FIRST = 0.1  # of the full length; an earlier part of the curve predicts little, or the opposite


@cache
def rungs(last_epoch: int) -> list[int]:
    """Return the epochs before the last at which trials are judged by their curves."""
    found, rung = list[int](), max(1, round(FIRST * last_epoch))
    while rung < last_epoch:
        found.append(rung)
        rung = max(round(rung * GROWTH), rung + 1)
    return found


def progress(epoch: int, length: int, longest: int) -> float:
    """Return 1 at the end of a trial, and 0 after the first epoch of the longest that the space has.

    It is logarithmic, because curves change most at the start. Trials of different lengths are compared at equal
    fractions of their lengths, because the schedule of the learning rate depends on that fraction.
    """
    return 1 + math.log(epoch / length) / math.log(longest)
