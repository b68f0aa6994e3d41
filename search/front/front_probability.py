"""Fronts that uncertain measurements allow: the share of them that has a point is its probability. NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from search.front.pareto import Losses, is_pareto_optimal, pareto_rank

DRAWS = 1000
FARTHEST_RANK = 5  # points behind so many fronts are never on it


Errors = Callable[[NDArray[np.int_], np.random.Generator], NDArray[np.float64]]


def front_draws(losses: Losses, deviations: Losses, errors: Errors | None = None) -> NDArray[np.bool_]:
    """Draw all points, and return which of them are on the front, shape (DRAWS, num_points); the same every time.

    Every objective of every point is drawn from a normal distribution with that standard deviation. `errors` draws the
    standard normal errors of some points, shape (len(points), num_objectives); None: independently of each other.
    """
    on_front = np.zeros((DRAWS, len(losses)), dtype=bool)
    near = np.flatnonzero(pareto_rank(losses) < FARTHEST_RANK)
    rng = np.random.default_rng(0)
    for row in on_front:
        drawn = errors(near, rng) if errors else rng.standard_normal((len(near), losses.shape[1]))
        row[near] = is_pareto_optimal(losses[near] + deviations[near] * drawn)
    return on_front
