"""Noise of measurements, as a shared machine has it: rates are disturbed more in one trial than in another."""

from __future__ import annotations

import numpy as np
from problems import Point

from search.front.intervals import HALF_95

RATE_HALVES = 0.03, 0.5  # smallest and largest half of a rate's 95% interval, of the rate; its median is 0.12
ACCURACY_HALF = 0.005  # half of an accuracy's 95% interval


class Noise:
    """Errors that are the same for the same seed and number of the trial, whatever the method proposes."""

    def __init__(self, seed: int) -> None:
        self._seed, self._number = seed, -1
        self.next_trial()

    def next_trial(self) -> None:
        """Draw how much the next trial is disturbed, and by how much its rate is wrong in all epochs."""
        self._number += 1
        self._generator = np.random.default_rng([self._seed, self._number])
        low, high = RATE_HALVES
        self._half = low * (high / low) ** self._generator.random()
        self._factor = float(np.exp(self._half / HALF_95 * self._generator.standard_normal()))

    def told(self, point: Point) -> tuple[Point, float]:
        """Return what is measured instead of the point, and half of the 95% interval of its rate."""
        accuracy, rate = point
        error = ACCURACY_HALF / HALF_95 * self._generator.standard_normal()
        return (accuracy + error, rate * self._factor), rate * self._factor * self._half
