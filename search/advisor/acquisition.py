"""Expected hypervolume improvement of points with uncertain losses. NumPy, SciPy."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import gamma, ndtr
from scipy.stats import qmc

from search.front.pareto import is_pareto_optimal

Array = NDArray[np.float64]
MOST_EXACT = 3  # objectives; of four, 60 points of a front have ten thousands of boxes
DIRECTIONS, DRAWS = 32, 32


def expected_improvement(means: Array, deviations: Array, front: Array, reference_point: Array) -> Array:
    """Return the hypervolume that each of m points is expected to add to `front`, shape (m,).

    The losses of a point are independent and normal, `means` and `deviations` of shape (m, num_objectives); lower is
    better. Exact for two and three objectives (Emmerich et al. 2011, "Hypervolume-based expected improvement"), and
    else estimated by random hypervolume scalarizations (Golovin & Zhang 2020, arXiv 2006.04655).
    """
    front = front[(front < reference_point).all(axis=1)]
    if len(reference_point) > MOST_EXACT:
        return _scalarized(means, deviations, front, reference_point)
    return _by_slabs(means, deviations, front, reference_point)


def _by_slabs(means: Array, deviations: Array, front: Array, reference_point: Array) -> Array:
    """Add up slabs along the last objective; within one, the front of the other objectives is constant."""
    front = front[is_pareto_optimal(front)]
    front = front[np.argsort(front[:, -1])]
    edges = np.append(front[:, -1], reference_point[-1])  # (num_slabs,), upper ones
    thickness = np.diff(expected_excess(edges, means[:, -1:], deviations[:, -1:]), axis=1, prepend=0.0)
    means, deviations, corner = means[:, :-1], deviations[:, :-1], reference_point[:-1]
    if len(corner) == 1:
        areas = expected_excess(np.minimum.accumulate(np.append(corner, front[:, 0])), means, deviations)
    else:
        fronts = (front[:i, :-1] for i in range(len(edges)))
        areas = np.stack([_by_slabs(means, deviations, lower, corner) for lower in fronts], axis=1)
    return np.asarray((thickness * areas).sum(axis=1))


def expected_excess(bounds: Array, means: Array, deviations: Array) -> Array:
    """Return the expectation of max(bound - x, 0) for a normal variable x."""
    z = (bounds - means) / deviations
    return np.asarray((bounds - means) * ndtr(z) + deviations * np.exp(-0.5 * z * z) / (2 * np.pi) ** 0.5)


def _scalarized(means: Array, deviations: Array, front: Array, reference_point: Array) -> Array:
    """Average, over rays from the reference point, the distance gained beyond the front to the power of k."""
    k = len(reference_point)
    scale = np.maximum(reference_point - np.min(front, axis=0), 1e-12) if len(front) else np.ones(k)
    directions = np.abs(qmc.MultivariateNormalQMC(np.zeros(k), rng=0).random(DIRECTIONS))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    draws = qmc.MultivariateNormalQMC(np.zeros(k), rng=1).random(DRAWS)
    reach = (reference_point - (means[:, None, :] + deviations[:, None, :] * draws)) / scale  # (m, DRAWS, k)
    dominated = (reference_point - front) / scale
    gained = np.zeros(len(means))
    for direction in directions:
        best = (dominated / direction).min(axis=1).max(initial=0.0) ** k
        gained += np.maximum(np.maximum(reach / direction, 0.0).min(axis=2) ** k - best, 0.0).mean(axis=1)
    # the part of the ball of radius 1 in which all coordinates are positive
    orthant = np.pi ** (k / 2) / 2**k / gamma(k / 2 + 1)
    return np.asarray(gained / DIRECTIONS * orthant * scale.prod())
