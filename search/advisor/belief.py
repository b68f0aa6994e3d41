"""What is believed of one metric, given its measurements in the order in which they came."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from search.advisor.encoding import Encoding, Rows
from search.advisor.surrogate import GaussianProcess, Hyperparameters

Array = NDArray[np.float64]

MOST_POINTS = 256  # that a Gaussian process is of: its cost grows with their cube
REFIT_GROWTH = 1.15  # hyperparameters are looked for again when there is so much more to see


class Belief:
    """A Gaussian process that is fitted when it is asked. Equal measurements in equal order give equal beliefs.

    `columns`: the parameters that bear on the metric; `scale`: on which it is modelled, `least_spread` on that scale.
    """

    def __init__(
        self,
        encoding: Encoding,
        columns: NDArray[np.int_],
        scale: Callable[[Array], Array] = np.asarray,
        least_spread: float = 0.0,
    ) -> None:
        self.columns = columns
        self.highest = -np.inf  # of all measurements
        self._encoding, self._scale, self._least_spread = encoding, scale, least_spread
        self._rows: list[Rows] = []
        self._progress: list[float] = []
        self._values: list[float] = []
        self._fitted: GaussianProcess | None = None
        self._found: tuple[int, Hyperparameters] | None = None  # at which number of measurements

    def __len__(self) -> int:
        return len(self._values)

    def learn(self, row: Rows, progress: float, value: float) -> None:
        """Take in a measurement; `progress` is 1 at full length, or where length does not matter."""
        self._rows.append(row)
        self._progress.append(progress)
        self._values.append(value)
        self.highest = max(self.highest, value)
        self._fitted = None

    def predict(self, rows: Rows) -> tuple[Array, Array]:
        """Mean and standard deviation at full length, on the belief's scale, each of shape (m,)."""
        if self._fitted is None:
            self._fitted = self._fit(len(self), self._hyperparameters())
        return self._fitted.predict(self._features(rows), np.ones(len(rows)))

    def probability_below_zero(self, rows: Rows) -> Array:
        """Of the metric, at full length."""
        means, deviations = self.predict(rows)
        return np.asarray(ndtr(-means / np.hypot(deviations, 0.1)))

    def _hyperparameters(self) -> Hyperparameters:
        """The most likely ones of the first measurements, whose number moves on in steps: a matter of order only."""
        count = _step_below(len(self))
        if self._found is None or self._found[0] != count:
            self._found = (count, self._fit(count, None).hyperparameters)
        return self._found[1]

    def _fit(self, count: int, hyperparameters: Hyperparameters | None) -> GaussianProcess:
        """Of the first `count` measurements: of too many, the newer half and as many of the others, evenly."""
        chosen = np.arange(count)
        if count > MOST_POINTS:
            half = MOST_POINTS // 2
            chosen = np.concatenate([np.linspace(0, count - half - 1, half).astype(int), chosen[-half:]])
        return GaussianProcess(
            self._features(np.stack([self._rows[i] for i in chosen])),
            np.array(self._progress)[chosen],
            self._scale(np.array(self._values)[chosen]),
            self._encoding.scale_of(self.columns),
            hyperparameters,
            self._least_spread,
        )

    def _features(self, rows: Rows) -> Array:
        return self._encoding.features(rows, self.columns)


def warped(losses: Array) -> Array:
    """Losses on a scale fit for a Gaussian: rates by their logarithm, and the worse half drawn in.

    A rate, which may differ by factors, is known by all losses being below zero and far apart.
    """
    if losses.min() < 5 * losses.max() < 0:
        losses = relative(losses)
    median, quarter = np.quantile(losses, [0.5, 0.25])
    unit = max(float(median - quarter), 1e-9 * max(1.0, abs(float(median))))
    z = (losses - median) / unit
    return np.asarray(np.where(z > 0, np.log1p(np.maximum(z, 0.0)), z))


def relative(losses: Array) -> Array:
    """Rates by their logarithm: a difference of 0.01 is one of 1%. What is no rate stays as it is."""
    return np.asarray(-np.log(-losses)) if (losses < 0).all() else losses


def _step_below(count: int) -> int:
    """The largest number up to `count` of a series that grows by REFIT_GROWTH."""
    number = 4
    while (larger := max(number + 1, int(number * REFIT_GROWTH))) <= count:
        number = larger
    return min(number, count)
