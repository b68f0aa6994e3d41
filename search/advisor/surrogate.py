"""A Gaussian process over configurations and epochs: what one metric would come to, and how sure that is. NumPy, SciPy.

    covariance = matern(configurations) * (a + b * matern(epochs)) + c * matern(epochs) + noise

`a` is what a configuration has at any length of training, `b` how far that changes with the length, `c` the mean curve
of all. The length scales and these sizes are the most likely ones (maximum a posteriori, by their gradient). Rasmussen
& Williams 2006, "Gaussian Processes for Machine Learning", chapters 2, 4 and 5; a product of configuration and epoch
kernels as in Swersky et al. 2013, "Multi-Task Bayesian Optimization".
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.optimize import minimize
from threadpoolctl import ThreadpoolController

Array = NDArray[np.float64]
ROOT5 = 5.0**0.5
JITTER = 1e-6
MOST_ITERATIONS = 40
LIBRARY = ThreadpoolController()


@dataclass(frozen=True)
class Hyperparameters:
    """Their logarithms, in one vector: inverse squared length scales, then the sizes of `SIZES`."""

    logs: Array
    num_scales: int

    @property
    def scales(self) -> Array:
        """By which squared differences of features are multiplied, shape (num_scales,)."""
        return np.asarray(np.exp(self.logs[: self.num_scales]))

    @property
    def sizes(self) -> Array:
        """Values of `SIZES`; the data are scaled to a variance of 1."""
        return np.asarray(np.exp(self.logs[self.num_scales :]))


# What is expected of them before any data, as the mean and standard deviation of the logarithm.
SIZES = ("always", "noise", "changing", "epochs_scale", "mean_curve")
SIZE_PRIOR = np.log([1.0, 1e-2, 0.5, 2.0, 0.5]), np.array([1.0, 2.0, 1.0, 1.0, 1.0])
SCALE_PRIOR = 0.0, 1.5
BOUNDS = (-8.0, 6.0)


class GaussianProcess:
    """Of values of one metric at (features, progress); progress is 0 at the first epoch and 1 at full length."""

    def __init__(
        self,
        features: Array,
        progress: Array,
        values: Array,
        scale_of: NDArray[np.int_],
        hyperparameters: Hyperparameters | None = None,
        least_spread: float = 0.0,
    ) -> None:
        """Shapes (n, num_features), (n,), (n,), (num_features,). None: the most likely ones are looked for.

        `least_spread`: that the metric is known to have elsewhere, however much alike these few values are.
        """
        self._features, self._progress, self._scale_of = features, progress, scale_of
        self._mean = float(values.mean())
        self._spread = max(float(values.std()), least_spread) or 1.0
        scaled = (values - self._mean) / self._spread
        with _one_thread():
            self.hyperparameters = hyperparameters or _most_likely(features, progress, scaled, scale_of)
            covariance = self._covariance(features, progress)
            covariance[np.diag_indices_from(covariance)] += self.hyperparameters.sizes[1] + JITTER
            self._factor = np.linalg.cholesky(covariance)
            self._weights = cho_solve((self._factor, True), scaled, check_finite=False)

    def predict(self, features: Array, progress: Array) -> tuple[Array, Array]:
        """Mean and standard deviation of the metric, without the noise of its measurement, each of shape (m,)."""
        with _one_thread():
            covariance = self._covariance(features, progress)
            explained = solve_triangular(self._factor, covariance.T, lower=True, check_finite=False)
            means = self._mean + self._spread * (covariance @ self._weights)
        always, _, changing, _, mean_curve = self.hyperparameters.sizes
        variance = np.maximum(always + changing + mean_curve - np.einsum("ij,ij->j", explained, explained), 1e-9)
        return means, self._spread * np.sqrt(variance)

    def _covariance(self, features: Array, progress: Array) -> Array:
        """With the data, shape (m, n)."""
        weights = np.sqrt(self.hyperparameters.scales[self._scale_of])
        squared = _squared_distances(features * weights, self._features * weights)
        always, _, changing, epochs_scale, mean_curve = self.hyperparameters.sizes
        alike = _matern(squared)[0]
        epochs = _matern(epochs_scale * (progress[:, None] - self._progress[None, :]) ** 2)[0]
        return np.asarray(alike * (always + changing * epochs) + mean_curve * epochs)


def _one_thread() -> AbstractContextManager[object]:
    """For matrices of a few hundred rows. Where trials have the cores, threads of the library wait for each other, at 9
    times the cost (results/LOG.md); and one thread adds up in the same order on every machine.
    """
    limited: AbstractContextManager[object] = LIBRARY.limit(limits=1, user_api="blas")
    return limited


def _squared_distances(left: Array, right: Array) -> Array:
    products = left @ right.T
    squares = (left * left).sum(axis=1)[:, None] + (right * right).sum(axis=1)[None, :] - 2 * products
    return np.asarray(np.maximum(squares, 0.0))


def _matern(squared: Array) -> tuple[Array, Array]:
    """The Matern 5/2 kernel of squared distances, and its derivative by them."""
    distance = ROOT5 * np.sqrt(squared)
    decay = np.exp(-distance)
    return (1 + distance + 5 / 3 * squared) * decay, -5 / 6 * (1 + distance) * decay


def _most_likely(features: Array, progress: Array, values: Array, scale_of: NDArray[np.int_]) -> Hyperparameters:
    num_scales = int(scale_of.max()) + 1
    differences = np.stack(
        [
            _squared_distances(features[:, scale_of == scale], features[:, scale_of == scale])
            for scale in range(num_scales)
        ]
    )
    steps = (progress[:, None] - progress[None, :]) ** 2
    means = np.concatenate([np.full(num_scales, SCALE_PRIOR[0]), SIZE_PRIOR[0]])
    spreads = np.concatenate([np.full(num_scales, SCALE_PRIOR[1]), SIZE_PRIOR[1]])

    def loss(logs: Array) -> tuple[float, Array]:
        likelihood, gradient = _negative_log_likelihood(Hyperparameters(logs, num_scales), differences, steps, values)
        surprise = (logs - means) / spreads
        return likelihood + 0.5 * float(surprise @ surprise), gradient + surprise / spreads

    found = minimize(
        loss,
        means,
        jac=True,
        method="L-BFGS-B",
        bounds=[BOUNDS] * len(means),
        options={"maxiter": MOST_ITERATIONS},
    )
    return Hyperparameters(found.x, num_scales)


def _negative_log_likelihood(
    hyperparameters: Hyperparameters, differences: Array, steps: Array, values: Array
) -> tuple[float, Array]:
    """Of the data, and its gradient by the logarithms; `differences` has shape (num_scales, n, n), `steps` (n, n)."""
    scales = hyperparameters.scales
    always, noise, changing, epochs_scale, mean_curve = hyperparameters.sizes
    alike, alike_slope = _matern(np.tensordot(scales, differences, 1))
    epochs, epochs_slope = _matern(epochs_scale * steps)
    covariance = alike * (always + changing * epochs) + mean_curve * epochs
    covariance[np.diag_indices_from(covariance)] += noise + JITTER
    try:
        factor, _ = cho_factor(covariance, lower=True, check_finite=False)
    except np.linalg.LinAlgError:
        return 1e25, np.zeros_like(hyperparameters.logs)
    inverse = cho_solve((factor, True), np.eye(len(values)), check_finite=False)
    weights = inverse @ values
    likelihood = 0.5 * float(values @ weights) + float(np.log(np.diag(factor)).sum())
    outer = inverse - np.outer(weights, weights)
    by_distance = outer * alike_slope * (always + changing * epochs)
    gradient = np.concatenate(
        [
            scales * np.tensordot(differences, by_distance, 2),
            [
                always * np.vdot(outer, alike),
                noise * np.trace(outer),
                changing * np.vdot(outer, alike * epochs),
                epochs_scale * np.vdot(outer, steps * epochs_slope * (changing * alike + mean_curve)),
                mean_curve * np.vdot(outer, epochs),
            ],
        ]
    )
    return likelihood, 0.5 * gradient
