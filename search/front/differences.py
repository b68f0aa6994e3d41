"""Differences of rates, measured in turns: their estimate, and what they say of all rates together. NumPy.

Rates are compared as natural logarithms, where a difference of 0.01 is 1%.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from search.front.intervals import HALF_95

FEWEST_ROUNDS = 6  # with fewer, no interval of 95% follows from ranks
MOST_ROUNDS = 40  # of a comparison whose processes were started for it
MATTERS = 0.02  # of a rate; a smaller difference is a tie
LEAST_ERROR = 1e-6  # of a logarithm of a ratio; with smaller ones `reconcile` inverts matrices that are nearly singular
# Standard errors from zero at which an order is decided. It is looked at after each round: at two standard errors 19%
# of equal pairs would be told apart in one of 20 rounds, at three 3% (simulated, normal errors of 3%).
DECIDED = 3.0


@dataclass(frozen=True)
class Estimate:
    """Mean and standard error of a quantity. `ratio`, `is_tie` and `is_decided` are for logarithms of ratios alone."""

    mean: float
    deviation: float

    def __sub__(self, other: Estimate) -> Estimate:
        """Difference of two that are independent of each other."""
        return Estimate(self.mean - other.mean, math.hypot(self.deviation, other.deviation))

    @property
    def low(self) -> float:
        """Lower end of the 95% interval."""
        return self.mean - HALF_95 * self.deviation

    @property
    def high(self) -> float:
        """Upper end of the 95% interval."""
        return self.mean + HALF_95 * self.deviation

    @property
    def ratio(self) -> tuple[float, float, float]:
        """The ratio, and the ends of its 95% interval."""
        return math.exp(self.mean), math.exp(self.low), math.exp(self.high)

    @property
    def is_decided(self) -> bool:
        """True if one rate is surely higher, or the difference is surely smaller than what matters."""
        return abs(self.mean) > DECIDED * self.deviation or self.is_tie

    @property
    def is_tie(self) -> bool:
        """True if the difference is surely smaller than what matters."""
        return self.low > -MATTERS and self.high < MATTERS


def log_ratio(rounds: Sequence[tuple[float, float]]) -> Estimate | None:
    """Estimate the logarithm of the ratio of two rates from rounds in which each had a turn; None: too few rounds.

    The turns of a round follow each other directly, so a longer slowdown of the machine cancels; one of a single turn
    does not. Hence the Hodges-Lehmann estimate, with the interval of Wilcoxon's signed ranks, which outliers hardly
    move (Hollander, Wolfe and Chicken 2014, "Nonparametric Statistical Methods", section 3.2). In random order the
    differences of equal rates are symmetric about zero, which is all that it assumes.
    """
    n = len(rounds)
    if n < FEWEST_ROUNDS:
        return None
    logs = np.log([one / other for one, other in rounds])
    first, second = np.triu_indices(n)
    means = np.sort((logs[first] + logs[second]) / 2)
    # the interval reaches from the mean with this rank, from below, to that with the same rank from above
    rank = max(1, math.floor(len(means) / 2 - HALF_95 * math.sqrt(n * (n + 1) * (2 * n + 1) / 24)))
    low, high = means[rank - 1], means[-rank]
    return Estimate(float(np.median(means)), max(float(high - low) / 2 / HALF_95, LEAST_ERROR))


def reconcile(
    levels: Mapping[str, Estimate], differences: Mapping[tuple[str, str], Estimate]
) -> tuple[dict[str, Estimate], NDArray[np.float64]]:
    """Return all rates as levels and differences together say, and their covariance in the order of `levels`.

    `differences`: logarithms of the rate of the first of a pair over that of the second. Least squares, in which each
    measurement is weighted by its precision. Differences make the rates surer against each other, not all of them
    together: what slows a machine slows all, so that the mean of the levels is as uncertain as a level is.
    """
    places = {name: place for place, name in enumerate(levels)}
    precision = np.diag([1 / level.deviation**2 for level in levels.values()])
    weighted = np.array([level.mean / level.deviation**2 for level in levels.values()])
    for (one, other), difference in differences.items():
        row = np.zeros(len(levels))
        row[places[one]], row[places[other]] = 1.0, -1.0
        weight = 1 / difference.deviation**2
        precision += weight * np.outer(row, row)
        weighted += weight * difference.mean * row
    independent = np.linalg.inv(precision)
    means = independent @ weighted
    covariance = independent + _of_groups(levels, differences, places)
    deviations = np.sqrt(np.diag(covariance))
    return {name: Estimate(float(means[i]), float(deviations[i])) for name, i in places.items()}, covariance


def _of_groups(
    levels: Mapping[str, Estimate], differences: Mapping[tuple[str, str], Estimate], places: Mapping[str, int]
) -> NDArray[np.float64]:
    """Return the covariance by which the mean of each group of rates that were compared is as uncertain as a rate."""
    group = {name: {name} for name in levels}
    for one, other in differences:
        together = group[one] | group[other]
        group |= dict.fromkeys(together, together)
    found = np.zeros((len(levels), len(levels)))
    for names in {frozenset(each) for each in group.values()}:
        rows = [places[name] for name in names]
        found[np.ix_(rows, rows)] = (len(rows) - 1) / sum(1 / levels[name].deviation ** 2 for name in names)
    return found
