"""Pareto fronts, ranks, hypervolume and knee. NumPy and moocore, lower is better in every column.

Every function raises a ValueError if a loss is NaN: a trial without a measurement has no place on a front.
"""

from __future__ import annotations

import moocore
import numpy as np
from numpy.typing import NDArray

Losses = NDArray[np.float64]  # (num_points, num_objectives)
MOST_EXTENT = 20.0  # largest range of an objective that counts, in ranges from its best loss to its median


def is_pareto_optimal(losses: Losses) -> NDArray[np.bool_]:
    """Mark the points that no other point dominates, shape (num_points,).

    p dominates q when p is nowhere worse than q and somewhere better. Equal points do not
    dominate each other, so copies of an optimal point are all optimal.
    """
    # keep_weakly: moocore would otherwise keep the first of several equal points only
    return np.asarray(moocore.is_nondominated(_without_nan(losses), keep_weakly=True), dtype=bool)


def pareto_rank(losses: Losses) -> NDArray[np.int_]:
    """The front that each point belongs to, shape (num_points,): 0 is the Pareto front, 1 the front without it, ..."""
    if len(losses) == 0:
        return np.empty(0, dtype=int)
    return np.asarray(moocore.pareto_rank(_without_nan(losses)), dtype=int)


def front_order(losses: Losses, layers: int = 1) -> list[int]:
    """Indices of the points on the first `layers` fronts, best in the first objective first."""
    ranks = pareto_rank(losses)
    return [int(i) for i in np.lexsort(losses.T[::-1]) if ranks[i] < layers]


def hypervolume(losses: Losses, reference_point: NDArray[np.float64]) -> float:
    """Volume that `losses` dominate below `reference_point`.

    Points that are not strictly better than the reference point everywhere add nothing.
    """
    if len(losses) == 0:
        return 0.0
    return float(moocore.hypervolume(_without_nan(losses), ref=reference_point))


def reference_point(losses: Losses) -> NDArray[np.float64]:
    """The worst loss of each objective plus a tenth of its range, shape (num_objectives,).

    A tenth beyond the worst, so that the ends of the front count too (Ishibuchi et al. 2018, "How to specify a
    reference point in hypervolume calculation"). Where all losses of an objective are equal, a tenth of their size.
    Ranges are limited by `MOST_EXTENT`, as the loss of a training that diverged may be many thousand times the others.

    Raises:
        ValueError: there are no points.
    """
    if len(losses) == 0:
        raise ValueError("no points to take a reference point from")
    best = _without_nan(losses).min(axis=0)
    extent = _limited(losses.max(axis=0) - best, np.median(losses, axis=0) - best)
    worst = best + extent
    size = np.where(worst == 0, 1.0, np.abs(worst))
    return np.asarray(worst + 0.1 * np.where(extent > 0, extent, size), dtype=float)


def knee(losses: Losses, compared: Losses | None = None) -> int:
    """Index of the point of the front that is nearest to the ideal point, with the objectives scaled.

    The ideal point has the best loss of each objective; the distance is Euclidean, as in compromise programming
    (Zeleny 1973). An objective is scaled to its range on the front, or to what the median of the points `compared`
    (None: of all) lacks of the best, where that is more: of two points of a front, the one wins that lacks less of what
    points usually lack. The range is limited by `MOST_EXTENT`, so that one training that diverged does not make all
    others equal. Of equally near points, the first is chosen.

    Raises:
        ValueError: there are no points.
    """
    if len(losses) == 0:
        raise ValueError("no points to choose a knee from")
    front = np.flatnonzero(is_pareto_optimal(losses))
    points = losses[front]
    best = points.min(axis=0)
    usual = np.median(losses if compared is None else compared, axis=0) - best
    extents = np.maximum(_limited(np.ptp(points, axis=0), usual), usual)
    distances = np.linalg.norm((points - best) / np.where(extents > 0, extents, 1.0), axis=1)
    return int(front[distances.argmin()])


def _limited(extents: Losses, usual: Losses) -> Losses:
    """Return ranges of objectives, at most `MOST_EXTENT` times as large as what is `usual`, where that is known."""
    return np.where(usual > 0, np.minimum(extents, MOST_EXTENT * usual), extents)


def _without_nan(losses: Losses) -> Losses:
    if np.isnan(losses).any():
        raise ValueError("losses contain NaN; pass measured trials only")
    return losses
