"""Gaussian process over configurations and epochs, for one metric. NumPy, SciPy.

    covariance = matern(configurations) * (a + b * matern(epochs)) + c * matern(epochs) + trends + noise + given noise

`a` is the variance of a configuration's effect at any length of training, `b` the variance that changes with the
length, `c` that of the mean curve of all configurations; `noise` is common to all measurements, the given noise is the
squared standard error of each. A trend is a number with which the metric may rise or fall, such as a feature or what
the model of an earlier run predicts; its slope is normal around 0, with a variance that is learned. Length scales and
variances are fitted by maximum a posteriori, with gradients.
Rasmussen & Williams 2006, "Gaussian Processes for Machine Learning", chapters 2, 4 and 5; a product of configuration
and epoch kernels as in Swersky et al. 2013, "Multi-Task Bayesian Optimization".
"""

import copy
from contextlib import ContextDecorator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.optimize import minimize
from threadpoolctl import ThreadpoolController

Array = NDArray[np.float64]
ROOT5 = 5.0**0.5
JITTER = 1e-6
MAX_ITERATIONS = 40
# Matrices have a few hundred rows. Where trials occupy the cores, several threads wait for each other and cost 9 times
# as much (results/LOG.md). One thread also adds in the same order on every machine.
on_one_thread: ContextDecorator = ThreadpoolController().wrap(limits=1, user_api="blas")


class Points(NamedTuple):
    """Places of n measurements or predictions."""

    features: Array  # (n, num_features)
    progress: Array  # (n,): 0 after the first epoch, 1 at full length
    trends: Array  # (n, num_trends), with standard deviations of about 1


class Hyperparameters(NamedTuple):
    """Factors of squared differences, variances of the parts of the covariance, and variances of the trends' slopes."""

    scales: Array  # (num_scales,), of the features
    sizes: Array  # named in `SIZES`, for data scaled to a variance of 1
    slopes: Array  # (num_trends,)

    @classmethod
    def from_logs(cls, logs: Array, num_scales: int) -> "Hyperparameters":
        """Return those with these logarithms, one after the other."""
        return cls(*np.split(np.exp(logs), [num_scales, num_scales + len(SIZES)]))


# Priors: mean and standard deviation of the logarithm.
SIZES = ("always", "noise", "changing", "epochs_scale", "mean_curve")
SIZE_PRIOR = np.log([1.0, 1e-2, 0.5, 2.0, 0.5]), np.array([1.0, 2.0, 1.0, 1.0, 1.0])
SCALE_PRIOR = 0.0, 1.5
SLOPE_PRIOR = float(np.log(0.1)), 2.0
BOUNDS = (-8.0, 6.0)


class GaussianProcess:
    """Gaussian process of one metric."""

    @on_one_thread
    def __init__(
        self,
        points: Points,
        values: Array,
        scale_of: NDArray[np.int_],
        hyperparameters: Hyperparameters | None = None,
        min_spread: float = 0.0,
        errors: Array | float = 0.0,
        misses: Array | float = 0.0,
    ) -> None:
        """Fit to values of shape (n,); `scale_of`, (num_features,), indexes length scales.

        `hyperparameters` None: fit them. `min_spread`: smallest standard deviation to assume for few similar values.
        `errors`: standard error of each value, (n,), as far as it is known; `misses`: standard deviation by which the
        metric itself differs from what is asked for, (n,).
        """
        self._points, self._scale_of = points, scale_of
        self.mean = float(values.mean())
        self.spread = max(float(values.std()), min_spread) or 1.0
        scaled = (values - self.mean) / self.spread
        self._missed = np.broadcast_to((misses / self.spread) ** 2, values.shape) + JITTER
        given = (errors / self.spread) ** 2 + self._missed
        self.hyperparameters = hyperparameters or _fit(points, scaled, scale_of, given)
        self._noise = self.hyperparameters.sizes[1] + given
        self._factors = self._factorized()
        self._weights = cho_solve((self._factors[0], True), scaled, check_finite=False)

    @on_one_thread
    def expecting(self, points: Points) -> "GaussianProcess":
        """Return this process as if its own means had been measured there: the means are the same, deviations smaller.

        Ginsbourger et al. 2010, "Kriging is well-suited to parallelize optimization" (kriging believer).
        """
        other, added = copy.copy(self), len(points.progress)
        other._points = Points(*map(np.concatenate, zip(self._points, points, strict=True)))
        other._noise = np.append(self._noise, np.full(added, self.hyperparameters.sizes[1] + JITTER))
        other._missed = np.append(self._missed, np.full(added, JITTER))
        other._weights = np.append(self._weights, np.zeros(added))
        other._factors = other._factorized()
        return other

    @on_one_thread
    def predict(self, points: Points, noise_free: bool = False) -> tuple[Array, Array]:
        """Return mean and standard deviation of the metric, without noise, each of shape (m,), `rounded`.

        `noise_free`: the deviation that would be left if measurements had no noise and were as predicted: 0 at a place
        that was measured. Forrester et al. 2006, "Design and analysis of 'noisy' computer experiments".
        """
        covariance = self._covariance(points)
        explained = solve_triangular(self._factors[noise_free], covariance.T, lower=True, check_finite=False)
        means = self.mean + self.spread * (covariance @ self._weights)
        always, _, changing, _, mean_curve = self.hyperparameters.sizes
        prior = always + changing + mean_curve + points.trends**2 @ self.hyperparameters.slopes
        variance = np.maximum(prior - np.einsum("ij,ij->j", explained, explained), 1e-9)
        return rounded(means), rounded(self.spread * np.sqrt(variance))

    def _factorized(self) -> list[Array]:
        """Return the factors of the data's covariance, with and without noise."""
        covariance = self._covariance(self._points)
        return [np.asarray(np.linalg.cholesky(covariance + np.diag(own))) for own in (self._noise, self._missed)]

    def _covariance(self, points: Points) -> Array:
        """Return the covariance with the data, shape (m, n)."""
        weights, data = np.sqrt(self.hyperparameters.scales[self._scale_of]), self._points
        alike, _ = _matern(_squared_distances(points.features * weights, data.features * weights))
        always, _, changing, epochs_scale, mean_curve = self.hyperparameters.sizes
        progress, places = np.unique(points.progress, return_inverse=True)
        epochs = _matern(epochs_scale * (progress[:, None] - data.progress) ** 2)[0][places]
        of_trends = (points.trends * self.hyperparameters.slopes) @ data.trends.T
        return np.asarray(alike * (always + changing * epochs) + mean_curve * epochs + of_trends)


def rounded(values: Array) -> Array:
    """Round to single precision: the last digits of sums differ between processors, and would decide between ties."""
    return values.astype(np.float32).astype(np.float64)


def _squared_distances(left: Array, right: Array) -> Array:
    products = left @ right.T
    squares = (left * left).sum(axis=1)[:, None] + (right * right).sum(axis=1)[None, :] - 2 * products
    return np.asarray(np.maximum(squares, 0.0))


def _matern(squared: Array) -> tuple[Array, Array]:
    """Return the Matern 5/2 kernel of squared distances, and its derivative with respect to them."""
    distance = ROOT5 * np.sqrt(squared)
    decay = np.exp(-distance)
    return (1 + distance + 5 / 3 * squared) * decay, -5 / 6 * (1 + distance) * decay


def _fit(points: Points, values: Array, scale_of: NDArray[np.int_], given: Array) -> Hyperparameters:
    num_scales, num_trends = int(scale_of.max()) + 1, points.trends.shape[1]
    groups = [points.features[:, scale_of == scale] for scale in range(num_scales)]
    differences = np.stack([_squared_distances(group, group) for group in groups])
    steps = (points.progress[:, None] - points.progress) ** 2
    means, spreads = (
        np.concatenate([np.full(num_scales, SCALE_PRIOR[i]), SIZE_PRIOR[i], np.full(num_trends, SLOPE_PRIOR[i])])
        for i in (0, 1)
    )

    def loss(logs: Array) -> tuple[float, Array]:
        tried = Hyperparameters.from_logs(logs, num_scales)
        likelihood, gradient = _negative_log_likelihood(tried, differences, steps, values, given, points.trends)
        surprise = (logs - means) / spreads
        return likelihood + 0.5 * float(surprise @ surprise), gradient + surprise / spreads

    bounds = [BOUNDS] * len(means)
    found = minimize(loss, means, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": MAX_ITERATIONS})
    return Hyperparameters.from_logs(found.x, num_scales)


def _negative_log_likelihood(
    hyperparameters: Hyperparameters, differences: Array, steps: Array, values: Array, given: Array, trends: Array
) -> tuple[float, Array]:
    """Return it with its gradient; `differences` are squared, of shape (num_scales, n, n), `steps` too, (n, n).

    `given`: variance of each measurement's own noise, shape (n,); `trends`: (n, num_trends).
    """
    scales, (always, noise, changing, epochs_scale, mean_curve), slopes = hyperparameters
    alike, alike_slope = _matern(np.tensordot(scales, differences, 1))
    epochs, epochs_slope = _matern(epochs_scale * steps)
    covariance = alike * (always + changing * epochs) + mean_curve * epochs + (trends * slopes) @ trends.T
    covariance[np.diag_indices_from(covariance)] += noise + given
    try:
        factor, _ = cho_factor(covariance, lower=True, check_finite=False)
    except np.linalg.LinAlgError:
        return 1e25, np.zeros(sum(map(len, hyperparameters)))
    inverse = cho_solve((factor, True), np.eye(len(values)), check_finite=False)
    weights = inverse @ values
    likelihood = 0.5 * float(values @ weights) + float(np.log(np.diag(factor)).sum())
    outer = inverse - np.outer(weights, weights)
    by_distance = outer * alike_slope * (always + changing * epochs)
    of_sizes = [
        always * np.vdot(outer, alike),
        noise * np.trace(outer),
        changing * np.vdot(outer, alike * epochs),
        epochs_scale * np.vdot(outer, steps * epochs_slope * (changing * alike + mean_curve)),
        mean_curve * np.vdot(outer, epochs),
    ]
    of_slopes = slopes * np.einsum("ik,ij,jk->k", trends, outer, trends)
    return likelihood, 0.5 * np.concatenate([scales * np.tensordot(differences, by_distance, 2), of_sizes, of_slopes])
