"""The largest number for which something that grows with it stays within a limit, in few evaluations."""

from __future__ import annotations

from collections.abc import Callable

FINENESS = 64  # the answer is at most 1/64 too small
MOST_EVALUATIONS = 20


def largest(value: Callable[[int], float], limit: float, step: int = 1) -> int:
    """The largest multiple of `step` whose `value` is within `limit`, or a little less; 0: not even `step`.

    `value` rises, in pieces that are nearly straight, so that a line through two points leads near the answer.
    """
    low, high = (step, value(step)), (256 * step, value(256 * step))
    if low[1] > limit:
        return 0
    fits, fails = step, None
    for _ in range(MOST_EVALUATIONS):
        for number, found in (low, high):
            if found <= limit:
                fits = max(fits, number)
            elif fails is None or number < fails:
                fails = number
        if fails is not None and fails - fits <= max(step, fits // FINENESS):
            break
        low, high = high, _next(value, (low, high), limit, (fits, fails), step)
    return fits


def _next(
    value: Callable[[int], float],
    points: tuple[tuple[int, float], tuple[int, float]],
    limit: float,
    bounds: tuple[int, int | None],
    step: int,
) -> tuple[int, float]:
    """Where the line through both points meets the limit, a little below, within the bounds; else half-way."""
    (x0, y0), (x1, y1) = points
    fits, fails = bounds
    slope = (y1 - y0) / (x1 - x0) if x1 != x0 else 0.0
    guess = x1 + (limit - y1) / slope if slope > 0 else 2.0 * x1
    number = int(guess * (1 - 0.3 / FINENESS)) // step * step
    if number <= fits:
        number = fits + max(step, fits // FINENESS // step * step)
    if fails is not None and number >= fails:
        number = (fits + fails) // 2 // step * step
    return number, value(number)
