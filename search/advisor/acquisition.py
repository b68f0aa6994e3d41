"""Expected hypervolume improvement of points with uncertain losses. NumPy, SciPy."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import qmc

from search.front.pareto import is_pareto_optimal

Array = NDArray[np.float64]
DIRECTIONS, DRAWS = 64, 64


def expected_improvement(means: Array, deviations: Array, front: Array, reference_point: Array) -> Array:
    """Return the hypervolume that each of m points is expected to add to `front`, shape (m,).

    The losses of a point are independent and normal, `means` and `deviations` of shape (m, num_objectives); lower is
    better. Exact for two objectives (Emmerich et al. 2011, "Hypervolume-based expected improvement"), and else by
    random hypervolume scalarizations (Golovin & Zhang 2020, arXiv 2006.04655), up to a constant factor.
    """
    front = front[(front < reference_point).all(axis=1)]
    if len(front):
        front = front[is_pareto_optimal(front)]
    if len(reference_point) != 2:
        return _scalarized(means, deviations, front, reference_point)
    # the sum over vertical strips of the plane below the reference point; the front is constant within a strip
    front = front[np.argsort(front[:, 0])]
    right_edges = np.append(front[:, 0], reference_point[0])  # (num_strips,)
    ceilings = np.append(reference_point[1], front[:, 1])
    widths = expected_excess(right_edges, means[:, :1], deviations[:, :1])  # (m, num_strips), left of each right edge
    heights = expected_excess(ceilings, means[:, 1:], deviations[:, 1:])
    return np.asarray((np.diff(widths, axis=1, prepend=0.0) * heights).sum(axis=1))


def expected_excess(bounds: Array, means: Array, deviations: Array) -> Array:
    """Return the expectation of max(bound - x, 0) for a normal variable x."""
    z = (bounds - means) / deviations
    return np.asarray((bounds - means) * ndtr(z) + deviations * np.exp(-0.5 * z * z) / (2 * np.pi) ** 0.5)


def _scalarized(means: Array, deviations: Array, front: Array, reference_point: Array) -> Array:
    """Average, over rays from the reference point, the distance gained beyond the front to the power of k."""
    k = len(reference_point)
    scale = np.maximum(reference_point - np.min(np.vstack([front, means]), axis=0), 1e-12)
    directions = np.abs(qmc.MultivariateNormalQMC(np.zeros(k), rng=0).random(DIRECTIONS))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    draws = qmc.MultivariateNormalQMC(np.zeros(k), rng=1).random(DRAWS)
    reach = (reference_point - (means[:, None, :] + deviations[:, None, :] * draws)) / scale  # (m, DRAWS, k)
    dominated = (reference_point - front) / scale
    gained = np.zeros(len(means))
    for direction in directions:
        best = (dominated / direction).min(axis=1).max(initial=0.0) ** k
        gained += np.maximum(np.maximum(reach / direction, 0.0).min(axis=2) ** k - best, 0.0).mean(axis=1)
    return gained / DIRECTIONS
