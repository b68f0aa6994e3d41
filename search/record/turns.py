"""Rounds in which two trials measured their rates in turns, and what follows for the rates of all of them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from search.front.differences import Estimate, log_ratio, reconcile

Pair = tuple[str, str]  # names of the trials that stand for their groups


class Turns:
    """Rates by pairs. A name stands for all trials that share its rate."""

    def __init__(self) -> None:
        self._rounds: dict[Pair, list[tuple[float, float]]] = defaultdict(list)
        self._estimates: dict[Pair, Estimate] = {}
        self._settled: dict[str, Estimate] = {}
        self._covariance: NDArray[np.float64] = np.empty((0, 0))

    def __bool__(self) -> bool:
        return bool(self._rounds)

    def add(self, one: str, other: str, rates: tuple[float, float]) -> None:
        """Add a round."""
        if one > other:
            one, other, rates = other, one, rates[::-1]
        self._rounds[one, other].append(rates)
        if (estimate := log_ratio(self._rounds[one, other])) is not None:
            self._estimates[one, other] = estimate

    def num_rounds(self, one: str, other: str) -> int:
        """Number of rounds of the two."""
        return len(self._rounds.get((min(one, other), max(one, other)), ()))

    @property
    def pairs(self) -> list[Pair]:
        """All pairs, in the order of their first rounds."""
        return list(self._rounds)

    @property
    def names(self) -> list[str]:
        """Names of all that had turns."""
        return sorted({name for pair in self._rounds for name in pair})

    def settle(self, levels: Mapping[str, Estimate]) -> Mapping[str, Estimate]:
        """Return the logarithms of the rates from the turns and from `levels`, which has each of the `names`."""
        self._settled, self._covariance = reconcile(levels, self._estimates)
        return self._settled

    def difference(self, one: str, other: str) -> Estimate | None:
        """Logarithm of the ratio of two rates, as settled; None: one of them had no turn."""
        if one not in self._settled or other not in self._settled:
            return None
        places, covariance = list(self._settled), self._covariance
        i, j = places.index(one), places.index(other)
        variance = covariance[i, i] + covariance[j, j] - 2 * covariance[i, j]
        return Estimate(self._settled[one].mean - self._settled[other].mean, math.sqrt(max(variance, 1e-18)))

    def errors(self, rng: np.random.Generator) -> dict[str, float]:
        """Draw errors of the settled rates, correlated as they are, each with a standard deviation of 1."""
        if not self._settled:
            return {}
        drawn = np.linalg.cholesky(self._covariance) @ rng.standard_normal(len(self._settled))
        return dict(zip(self._settled, (drawn / np.sqrt(np.diag(self._covariance))).tolist(), strict=True))
