"""Probability that a point belongs to the front, given uncertain measurements. NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from search.front.pareto import Losses, is_pareto_optimal, pareto_rank

DRAWS = 1000
FARTHEST_RANK = 5  # points behind so many fronts are never on it


Errors = Callable[[NDArray[np.int_], np.random.Generator], NDArray[np.float64]]


def front_probability(losses: Losses, deviations: Losses, errors: Errors | None = None) -> NDArray[np.float64]:
    """Share of draws in which each point is on the front, shape (num_points,); the same every time.

    Every objective of every point is drawn from a normal distribution with that standard deviation. `errors` draws the
    standard normal errors of some points, shape (len(points), num_objectives); None: independently of each other.
    """
    probability = np.zeros(len(losses))
    near = np.flatnonzero(pareto_rank(losses) < FARTHEST_RANK)
    rng = np.random.default_rng(0)
    for _ in range(DRAWS):
        drawn = errors(near, rng) if errors else rng.standard_normal((len(near), losses.shape[1]))
        probability[near] += is_pareto_optimal(losses[near] + deviations[near] * drawn)
    return probability / DRAWS
