"""Correction for selection: the best of many trials owe a part of their values to luck. NumPy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
STEPS = 4  # between possible true values, of the smallest standard deviation
ITERATIONS = 100


def expected_values(values: Array, deviations: Array) -> Array:
    """Return the value to expect of each trial if it is measured again, shape (n,).

    `values` have independent normal errors with these standard `deviations`, (n,), above zero. The distribution of the
    true values is the one that makes all values together the most likely (Kiefer & Wolfowitz 1956). It is found by
    expectation maximisation, among values within a standard deviation of the measured ones. What is expected of a trial
    is its mean true value, given its measured one (Efron 2011, "Tweedie's formula and selection bias"). Values far
    apart, compared with their errors, hardly change; nearly equal ones move towards their mean.
    """
    step = deviations.min() / STEPS
    true = step * np.unique(np.round(values / step)[:, None] + np.arange(-STEPS, STEPS + 1))
    likelihood = np.exp(-0.5 * ((values[:, None] - true) / deviations[:, None]) ** 2)
    posterior = likelihood
    for _ in range(ITERATIONS):
        posterior = posterior / posterior.sum(axis=1, keepdims=True)
        posterior, last = likelihood * posterior.mean(axis=0), posterior
    return np.asarray(last @ true)
