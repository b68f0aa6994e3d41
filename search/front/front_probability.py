"""Probability that a point belongs to the front, given uncertain measurements. NumPy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from search.front.pareto import Losses, is_pareto_optimal, pareto_rank

DRAWS = 1000
FARTHEST_RANK = 5  # points behind so many fronts are never on it


def front_probability(
    losses: Losses, deviations: Losses, sources: NDArray[np.int_] | None = None
) -> NDArray[np.float64]:
    """Share of draws in which each point is on the front, shape (num_points,); the same every time.

    Every objective of every point is drawn from a normal distribution with that standard deviation: with one error for
    points with equal `sources`, shape (num_points, num_objectives), and independently of others. None: all differ.
    """
    if sources is None:
        sources = np.tile(np.arange(len(losses))[:, None], losses.shape[1])
    probability = np.zeros(len(losses))
    near = np.flatnonzero(pareto_rank(losses) < FARTHEST_RANK)
    objectives = np.arange(losses.shape[1])
    rng = np.random.default_rng(0)
    for _ in range(DRAWS):
        errors = rng.standard_normal((int(sources.max()) + 1, len(objectives)))
        drawn = losses[near] + deviations[near] * errors[sources[near], objectives]
        probability[near] += is_pareto_optimal(drawn)
    return probability / DRAWS
