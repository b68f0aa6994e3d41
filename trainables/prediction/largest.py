"""Search for the largest number at which a growing quantity stays within a limit, in few evaluations."""

from __future__ import annotations

from collections.abc import Callable

FINENESS = 64  # the answer is at most 1/64 too small
MAX_EVALUATIONS = 20


def largest(value: Callable[[int], float], limit: float, step: int = 1) -> int:
    """Return the largest multiple of `step` whose `value` is within `limit`, or slightly less; 0: not even `step`.

    `value` increases in nearly straight pieces, so that the line through two points meets the limit near the answer.
    """
    low, high = (step, value(step)), (256 * step, value(256 * step))
    if low[1] > limit:
        return 0
    fits, fails = step, None
    for _ in range(MAX_EVALUATIONS):
        for number, found in (low, high):
            if found <= limit:
                fits = max(fits, number)
            elif fails is None or number < fails:
                fails = number
        if fails is not None and fails - fits <= max(step, fits // FINENESS):
            break
        (x0, y0), (x1, y1) = low, high
        slope = (y1 - y0) / (x1 - x0) if x1 != x0 else 0.0
        guess = x1 + (limit - y1) / slope if slope > 0 else 2.0 * x1
        number = int(guess * (1 - 0.3 / FINENESS)) // step * step  # slightly below, where it probably fits
        if number <= fits:
            number = fits + max(step, fits // FINENESS // step * step)
        if fails is not None and number >= fails:
            number = (fits + fails) // 2 // step * step
        low, high = high, (number, value(number))
    return fits
