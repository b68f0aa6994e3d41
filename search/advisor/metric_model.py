"""Gaussian-process model of one metric, learned from its measurements in order."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from search.advisor.curve_levels import curve_levels
from search.advisor.encoding import Array, Encoding, Rows
from search.advisor.surrogate import GaussianProcess, Hyperparameters, Points

MAX_POINTS = 256  # in one Gaussian process, whose cost grows with the cube of this number
MAX_FITTED = 128  # of them, for the hyperparameters, whose fit takes as long as some dozens of predictions
OUTLIER = 10
UNIFORM_DEVIATION = 12**-0.5  # of what is spread evenly from 0 to 1
FEWEST_FOR_TREND = 4  # measurements of an earlier run
REFIT_GROWTH = 1.15  # hyperparameters are fitted again when the number of measurements has grown by this factor


class MetricModel:
    """Gaussian process that is fitted when first queried. Equal measurements in equal order give equal predictions.

    `columns`: the parameters that affect the metric; `scale`: the transformation of its values, which it gives with
    their slopes; `min_spread`: the smallest standard deviation to assume, on that scale; `equal_lengths`: all trials
    have the same length, so that their curves can be compared stage by stage; `is_learned`: the metric takes training,
    so that early measurements can mislead; those of a rate differ by noise alone.
    """

    def __init__(
        self,
        encoding: Encoding,
        columns: NDArray[np.int_],
        scale: Callable[[Array], tuple[Array, Array]] = lambda values: (values, np.ones(len(values))),
        min_spread: float = 0.0,
        equal_lengths: bool = True,
        is_learned: bool = True,
    ) -> None:
        self.columns = columns
        self.max_value = -np.inf  # of all measurements
        self.measured = set[bytes]()  # rows
        self._encoding, self._scale, self._min_spread = encoding, scale, min_spread
        self._equal_lengths, self.is_learned = equal_lengths, is_learned
        self._measurements: list[tuple[Rows, float, float, float]] = []  # row, progress, value, standard error
        self._trials: list[bytes] = []  # which trial each is of, by its row
        self._expected: Rows | None = None
        # by run
        self._elsewhere = defaultdict[str, MetricModel](lambda: MetricModel(encoding, columns, scale, min_spread))
        self._process: GaussianProcess | None = None
        self._fit: tuple[int, Hyperparameters] | None = None  # with the number of measurements that it was made from

    def __len__(self) -> int:
        return len(self._measurements)

    def learn(self, row: Rows, progress: float, value: float, error: float = 0.0) -> None:
        """Add a measurement; `progress` is 1 at full length, or where length does not matter.

        `error`: its standard error, beyond the noise that all measurements have and that is learned; 0: not known.
        """
        self._measurements.append((row, progress, value, error))
        self._trials.append(row.tobytes())
        self.measured.add(row.tobytes())
        self.max_value = max(self.max_value, value)
        self._process = None

    def learn_elsewhere(self, run: str, row: Rows, value: float, error: float = 0.0) -> None:
        """Add a measurement at full length of an earlier run on other data or another machine.

        What such a run predicts is a trend of this model, whose weight is learned from measurements made here.
        """
        self._elsewhere[run].learn(row, 1.0, value, error)
        self._process = self._fit = None

    def expect(self, rows: Rows) -> None:
        """Predict from now on as if the mean predictions for these rows had been measured at full length."""
        self._expected, self._process = rows if len(rows) else None, None

    def predict(self, rows: Rows, noise_free: bool = False) -> tuple[Array, Array]:
        """Return mean and standard deviation at full length, on the model's scale, each of shape (m,).

        `noise_free`: see `GaussianProcess.predict`.
        """
        return self._fitted().predict(self._points(rows), noise_free)

    def _fitted(self) -> GaussianProcess:
        if self._process is None:
            # fitted to a number of first measurements that grows in steps, so that only their order matters
            count, larger = 0, 4
            while larger <= len(self):
                count, larger = larger, max(larger + 1, int(larger * REFIT_GROWTH))
            count = count or len(self)
            if self._fit is None or self._fit[0] != count:
                self._fit = (count, self._gaussian_process(count, None).hyperparameters)
            self._process = self._gaussian_process(len(self), self._fit[1])
            if self._expected is not None:
                self._process = self._process.expecting(self._points(self._expected))
        return self._process

    def _points(self, rows: Rows) -> Points:
        """Return the points of rows at full length; trends are each feature and what each earlier run predicts.

        The slopes of features predict beyond what was tried, to the ends of ranges.
        """
        features = self._encoding.features(rows, self.columns)
        others = [model._standardized(rows) for model in self._elsewhere.values() if len(model) >= FEWEST_FOR_TREND]
        trends = np.column_stack([(features - 0.5) / UNIFORM_DEVIATION, *others])
        return Points(features, np.ones(len(rows)), trends)

    def _standardized(self, rows: Rows) -> Array:
        process = self._fitted()
        means, _ = process.predict(self._points(rows))
        return (means - process.mean) / process.spread

    def _gaussian_process(self, count: int, hyperparameters: Hyperparameters | None) -> GaussianProcess:
        """Use the first `count` measurements, of too many those that `last_of_each` returns.

        `hyperparameters` None: fit them, to fewer.
        """
        most = MAX_FITTED if hyperparameters is None else MAX_POINTS
        compared, used = last_of_each(self._trials[:count], most)
        rows, progress, values, errors = map(np.array, zip(*(self._measurements[i] for i in compared), strict=True))
        scaled, slopes = self._scale(values)
        misses = np.zeros(len(values))
        if self._equal_lengths:
            levels, spreads, misses = curve_levels([self._trials[i] for i in compared], progress, scaled)
            scaled, slopes = (scaled - levels) / spreads, slopes / spreads
        points, scale_of = self._points(rows[used]), self._encoding.scale_of(self.columns)
        points = points._replace(progress=progress[used])
        noise = (errors * slopes)[used], misses[used] * self.is_learned
        return GaussianProcess(points, scaled[used], scale_of, hyperparameters, self._min_spread, *noise)


def last_of_each(trials: Sequence[Hashable], most: int) -> tuple[NDArray[np.int_], NDArray[np.int_]]:
    """Return which measurements to compare with each other, and which of those to use: at most `most`.

    `trials`: which trial each measurement is of, oldest first. Compared are all measurements of at most `most` trials:
    the newer half and an even selection of the others. Used are the last one of each of these trials and, as far as
    there is room, the newest of the former ones.
    """
    newest = {trial: i for i, trial in enumerate(trials)}
    last, half = np.sort(list(newest.values())), most // 2
    if len(last) > most:
        last = np.append(last[np.linspace(0, len(last) - half - 1, half).astype(int)], last[-half:])
    kept = {trials[i] for i in last}
    compared = np.flatnonzero([trial in kept for trial in trials])
    preferred = np.argsort(np.isin(compared, last), kind="stable")  # last ones at the end
    return compared, np.sort(preferred[-most:])


def warp_losses(losses: Array) -> tuple[Array, Array]:
    """Transform losses to a scale fit for a Gaussian: logarithms of rates, and outliers among the worse drawn in.

    Losses are taken for rates, which may differ by factors, when all are below zero and far apart. An outlier is worse
    than the median by more than `OUTLIER` times what the best is better. Return the transformed losses and the slopes
    of the transformation.
    """
    slopes = np.ones(len(losses))
    if losses.min() < 5 * losses.max() < 0:
        losses, slopes = log_rates(losses)
    median = float(np.median(losses))
    unit = max(median - float(losses.min()), 1e-9 * max(1.0, abs(median)))
    z = (losses - median) / unit
    beyond = np.maximum(z - OUTLIER, 0.0)
    return np.minimum(z, OUTLIER) + np.log1p(beyond), slopes / unit / (1 + beyond)


def log_rates(losses: Array) -> tuple[Array, Array]:
    """Return losses of one sign as logarithms, where a difference of 0.01 is 1%, with their slopes; else unchanged."""
    if (losses < 0).all():
        return -np.log(-losses), -1 / losses
    return (np.log(losses), 1 / losses) if (losses > 0).all() else (losses, np.ones(len(losses)))
