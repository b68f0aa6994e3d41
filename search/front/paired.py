"""Correlation of what two trials measured on the same validation samples, from the values of single samples. NumPy.

Samples that are hard for one training are hard for another, so that most of what the choice of samples does to two
metrics is the same. Their difference is then known more sharply than each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from trainables.kept_samples import from_text

NEAREST_TO_ONE = 1 - 1e-6  # a correlation nearer to one is that of rounding


def correlations(samples: Sequence[str]) -> NDArray[np.float64]:
    """Return the correlations of trials, shape (trials, trials), from the samples of each; 0 where they are unknown.

    `samples`: as `trainables.kept_samples` writes them; empty: unknown.
    """
    matrix = np.eye(len(samples))
    known = {i: values for i, text in enumerate(samples) if (values := _standardized(text)) is not None}
    for length in {len(values) for values in known.values()}:
        places = [i for i, values in known.items() if len(values) == length]
        table = np.stack([known[i] for i in places])
        matrix[np.ix_(places, places)] = np.minimum(table @ table.T / length, NEAREST_TO_ONE)
    np.fill_diagonal(matrix, 1.0)
    return matrix


def correlated_errors(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the factor by which independent standard normal errors become errors with these correlations."""
    values, vectors = np.linalg.eigh(matrix)
    factor: NDArray[np.float64] = vectors * np.sqrt(np.maximum(values, 0.0))
    return factor


@lru_cache(maxsize=1024)
def _standardized(text: str) -> NDArray[np.float64] | None:
    """Return the values with mean 0 and standard deviation 1; None: there are none, or all are equal."""
    try:
        values = from_text(text).astype(np.float64) if text else np.empty(0)
    except ValueError:  # of a damaged journal
        return None
    deviation = values.std() if len(values) else 0.0
    return (values - values.mean()) / deviation if deviation > 0 else None
