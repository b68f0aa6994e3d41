"""Fronts that uncertain measurements allow: the share of them that has a point is its probability. NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from search.front.pareto import Losses, is_pareto_optimal, pareto_rank

DRAWS = 1000
FARTHEST = 4.0  # standard deviations; what would take more does not happen
MOST_POINTS = 1000  # on the first fronts, that are drawn

Chosen = NDArray[np.int_]  # indices of points
Normal = NDArray[np.float64]  # standard normal errors, a row for each chosen point
Errors = Callable[[Chosen, np.random.Generator], Normal]
Feasible = Callable[[Chosen, Normal], NDArray[np.bool_]]


def front_draws(
    losses: Losses,
    deviations: Losses,
    errors: Errors | None = None,
    feasible: Feasible | None = None,
    surely_feasible: NDArray[np.bool_] | None = None,
) -> NDArray[np.bool_]:
    """Draw all points, and return which of them are on the front, shape (DRAWS, num_points); the same every time.

    Every objective of every point is drawn from a normal distribution with that standard deviation. `errors` draws the
    standard normal errors of some points, whose first columns are those of the objectives; None: independently of each
    other. `feasible` says which points meet all constraints with these errors; one that does not is on no front.
    `surely_feasible`: of which points that is certain; None: of all.
    """
    on_front, (number, columns) = np.zeros((DRAWS, len(losses)), dtype=bool), losses.shape
    near = _near_the_front(
        losses, deviations, np.ones(number, dtype=bool) if surely_feasible is None else surely_feasible
    )
    near = np.sort(near[np.argsort(pareto_rank(losses[near]), kind="stable")[:MOST_POINTS]])
    rng = np.random.default_rng(0)
    for row in on_front:
        normal = errors(near, rng) if errors else rng.standard_normal((len(near), columns))
        drawn = losses[near] + deviations[near] * normal[: len(near), :columns]
        kept = feasible(near, normal) if feasible else np.ones(len(near), dtype=bool)
        row[near[kept]] = is_pareto_optimal(drawn[kept])
    return on_front


def _near_the_front(losses: Losses, deviations: Losses, surely_feasible: NDArray[np.bool_]) -> Chosen:
    """Return the points that may be on the front, as none that is surely feasible is better by far more than errors."""
    best, worst = losses - FARTHEST * deviations, (losses + FARTHEST * deviations)[surely_feasible]
    rivals = worst[is_pareto_optimal(worst)] if len(worst) else worst
    is_beaten = [bool(((rivals <= each).all(axis=1) & (rivals < each).any(axis=1)).any()) for each in best]
    return np.flatnonzero(~np.array(is_beaten, dtype=bool))
