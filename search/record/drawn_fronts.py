"""Draws of a run's front from the intervals of its trials. NumPy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from search.front.front_probability import FARTHEST, Chosen, Errors, Normal, front_draws
from search.front.intervals import HALF_95
from search.front.objective import Constraint
from search.front.paired import correlated_errors
from search.record.trial import Trial

if TYPE_CHECKING:
    from search.record.run_state import RunState

Array = NDArray[np.float64]


def drawn_fronts(state: RunState) -> NDArray[np.bool_]:
    """Return which candidates are on the front in draws from the 95% intervals, shape (draws, candidates).

    A metric without an interval is taken as exact, but for the rate. Rates are drawn as logarithms: none is below zero.
    A candidate that violates a constraint in a draw is not on its front. There must be a candidate.
    """
    points, baseline = state.candidates(), state.complete_baseline
    judged = [constraint for constraint in state.constraints if constraint.given(state.baseline_metrics)]
    # the last row is that of the baseline, which may be one of the points
    drawn = _Drawn(state, [*points, *([baseline] if baseline else [])], judged)
    signs = np.array(list(drawn.signs.values()))
    table, deviations = (each[: len(points), : len(signs)] for each in (drawn.values, drawn.deviations))
    limits = [_Limit(drawn, constraint) for constraint in judged]
    uncertain = [limit for limit in limits if limit.is_uncertain]
    if not uncertain:
        return front_draws(signs * table, deviations, drawn.errors())

    def feasible(chosen: Chosen, normal: Normal) -> NDArray[np.bool_]:
        return np.asarray(np.all([limit.is_met(chosen, normal) for limit in uncertain], axis=0))

    surely = np.all([limit.is_surely_met[: len(points)] for limit in uncertain], axis=0)
    return front_draws(signs * table, deviations, drawn.errors(), feasible, surely)


class _Drawn:
    """Metrics of trials with their standard deviations, shape (trials, metrics): objectives, then constrained ones."""

    def __init__(self, state: RunState, trials: Sequence[Trial], constraints: Sequence[Constraint]) -> None:
        self._state, self._trials = state, trials
        self.signs = {objective.metric: objective.loss(1.0) for objective in state.objectives}
        self.metrics = list(dict.fromkeys([*self.signs, *(constraint.metric for constraint in constraints)]))
        rate = state.rate_metric
        self.logarithmic = [metric == rate and all(trial.rate > 0 for trial in trials) for metric in self.metrics]
        columns = list(zip(self.metrics, self.logarithmic, strict=True))
        self.values = np.array([[self._value(t, metric, log) for metric, log in columns] for t in trials])
        self.deviations = np.array([[self._deviation(t, metric, log) for metric, log in columns] for t in trials])

    def _value(self, trial: Trial, metric: str, in_logarithms: bool) -> float:
        return trial.log_rate.mean if in_logarithms else trial.metrics.get(metric, math.nan)

    def _deviation(self, trial: Trial, metric: str, in_logarithms: bool) -> float:
        return (
            trial.log_rate.deviation if in_logarithms else (self._state.half_interval(trial, metric) or 0.0) / HALF_95
        )

    def errors(self) -> Errors:
        """Errors of the chosen trials and of the last one, shape (len(chosen) + 1, metrics).

        There is one for all that share a metric. They are correlated where turns settled rates, and where metrics are
        of the same validation samples.
        """

        @lru_cache(maxsize=1)
        def shared(chosen: tuple[int, ...]) -> list[tuple[str, list[str], NDArray[np.int_], Array]]:
            """Metrics with the trials that they are from, and the factor of errors."""
            found, trials = [], [self._trials[i] for i in (*chosen, -1)]
            for metric in self.metrics:
                sources = [trial.source(metric) for trial in trials]
                names, first, numbers = np.unique(sources, return_index=True, return_inverse=True)
                # of a point, not of the source itself: that may be a probe, which has no samples
                matrix = self._state.correlations([trials[i] for i in first], metric)
                found.append((metric, names.tolist(), numbers, correlated_errors(matrix)))
            return found

        def draw(chosen: Chosen, rng: np.random.Generator) -> Normal:
            columns = []
            for metric, names, numbers, factor in shared(tuple(chosen.tolist())):
                errors = factor @ rng.standard_normal(len(names))
                if metric == self._state.rate_metric:
                    for name, error in self._state.turns.errors(rng).items():
                        if name in names:
                            errors[names.index(name)] = error
                columns.append(errors[numbers])
            return np.stack(columns, axis=1)

        return draw


class _Limit:
    """Constraint on drawn metrics, perhaps relative to the last of the trials."""

    def __init__(self, drawn: _Drawn, constraint: Constraint) -> None:
        column = drawn.metrics.index(constraint.metric)
        self._values, self._deviations = drawn.values[:, column], drawn.deviations[:, column]
        self._column, self._logarithmic = column, drawn.logarithmic[column]
        self._of_loss = drawn.signs.get(constraint.metric, 1.0)  # errors of objectives are those of losses
        self._direction = 1.0 if constraint.operator == "<=" else -1.0
        self._factor, self._of_baseline = constraint.bound, constraint.of_baseline

    def _bound(self, baseline: float) -> float:
        """Return the bound on the scale of the values, given the baseline's value."""
        if not self._logarithmic:
            return self._factor * baseline if self._of_baseline else self._factor
        factor = math.log(self._factor) if self._factor > 0 else -math.inf
        return factor + (baseline if self._of_baseline else 0.0)

    @property
    def is_uncertain(self) -> bool:
        """True if some value has an error, so that the constraint may be violated after all."""
        return bool(self._deviations.any())

    @property
    def is_surely_met(self) -> NDArray[np.bool_]:
        """Trials that meet it by far more than the errors, or are not judged, as they did not measure the metric."""
        of_baseline = (1.0 if self._logarithmic else abs(self._factor)) * self._of_baseline
        errors = self._deviations + of_baseline * self._deviations[-1]
        beyond = self._direction * (self._values - self._bound(self._values[-1]))
        return np.asarray(~(beyond + FARTHEST * errors > 0))

    def is_met(self, chosen: Chosen, normal: Normal) -> NDArray[np.bool_]:
        """Return which of the chosen trials meet it with these errors, whose last row is that of the last trial."""
        rows = np.append(chosen, len(self._values) - 1)
        drawn = self._values[rows] + self._of_loss * self._deviations[rows] * normal[:, self._column]
        return np.asarray(~(self._direction * (drawn[:-1] - self._bound(float(drawn[-1]))) > 0))
