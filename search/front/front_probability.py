"""Fronts that uncertain measurements allow: the share of them that has a point is its probability. NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from search.front.pareto import Losses, is_pareto_optimal, pareto_rank

DRAWS = 1000
FARTHEST = 4.0  # standard deviations of two points; one that is worse by more is never better
MOST_POINTS = 1000  # on the first fronts, that are drawn

Chosen = NDArray[np.int_]  # indices of points
Errors = Callable[[Chosen, np.random.Generator], NDArray[np.float64]]
Feasible = Callable[[Chosen, Losses, np.random.Generator], NDArray[np.bool_]]


def front_draws(
    losses: Losses, deviations: Losses, errors: Errors | None = None, feasible: Feasible | None = None
) -> NDArray[np.bool_]:
    """Draw all points, and return which of them are on the front, shape (DRAWS, num_points); the same every time.

    Every objective of every point is drawn from a normal distribution with that standard deviation. `errors` draws the
    standard normal errors of some points, shape (len(points), num_objectives); None: independently of each other.
    `feasible` draws whether points with these drawn losses meet all constraints; a point that does not is on no front.
    """
    on_front = np.zeros((DRAWS, len(losses)), dtype=bool)
    near = _near_the_front(losses, deviations) if feasible is None else np.arange(len(losses))
    near = np.sort(near[np.argsort(pareto_rank(losses[near]), kind="stable")[:MOST_POINTS]])
    rng = np.random.default_rng(0)
    for row in on_front:
        normal = errors(near, rng) if errors else rng.standard_normal((len(near), losses.shape[1]))
        drawn = losses[near] + deviations[near] * normal
        kept = feasible(near, drawn, rng) if feasible else np.ones(len(near), dtype=bool)
        row[near[kept]] = is_pareto_optimal(drawn[kept])
    return on_front


def _near_the_front(losses: Losses, deviations: Losses) -> Chosen:
    """Return the points that may be on the front, as no other is better by far more than the errors."""
    best, worst = losses - FARTHEST * deviations, losses + FARTHEST * deviations
    rivals = worst[is_pareto_optimal(worst)]
    is_beaten = [bool(((rivals <= each).all(axis=1) & (rivals < each).any(axis=1)).any()) for each in best]
    return np.flatnonzero(~np.array(is_beaten, dtype=bool))
