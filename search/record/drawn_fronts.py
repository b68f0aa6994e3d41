"""Draws of a run's front from the intervals of its trials. NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from search.front.front_probability import Chosen, Errors, front_draws
from search.front.intervals import HALF_95
from search.front.objective import Constraint, Objective
from search.front.paired import correlated_errors
from search.front.pareto import Losses
from search.record.trial import Trial

if TYPE_CHECKING:
    from search.record.run_state import RunState


def drawn_fronts(state: RunState) -> NDArray[np.bool_]:
    """Return which candidates are on the front in draws from the 95% intervals, shape (draws, candidates).

    A metric without an interval is taken as exact, but for the rate. Rates are drawn as logarithms: none is below zero.
    A candidate that violates a constraint in a draw is not on its front. There must be a candidate.
    """
    points = state.candidates()
    table = state.losses(points)
    halves = np.array([[state.half_interval(t, o.metric) or 0.0 for o in state.objectives] for t in points])
    deviations, logarithmic = halves / HALF_95, set[str]()
    for column, objective in enumerate(state.objectives):
        if objective.metric == state.rate_metric and all(trial.rate > 0 for trial in points):
            logarithmic.add(objective.metric)
            table[:, column] = [objective.loss(math.log(trial.rate)) for trial in points]
            deviations[:, column] = [trial.log_rate.deviation for trial in points]
    found = (_Limit.of(state, points, constraint, logarithmic) for constraint in state.constraints)
    uncertain = [limit for limit in found if limit is not None and limit.is_uncertain]

    def feasible(chosen: Chosen, losses: Losses, rng: np.random.Generator) -> NDArray[np.bool_]:
        met = np.array([limit.is_met(chosen, losses, rng) for limit in uncertain])
        return np.asarray(met.all(axis=0))

    return front_draws(table, deviations, _errors(state, points), feasible if uncertain else None)


def _errors(state: RunState, points: Sequence[Trial]) -> Errors:
    """Errors of the objectives of points: one for all that share a metric.

    They are correlated where turns settled rates, and where metrics are of the same validation samples.
    """

    @lru_cache(maxsize=1)
    def shared(chosen: tuple[int, ...]) -> list[tuple[Objective, list[str], NDArray[np.int_], NDArray[np.float64]]]:
        """Objectives with the trials that the metric of the chosen points is from, and the factor of errors."""
        found = []
        for objective in state.objectives:
            sources = [points[i].source(objective.metric) for i in chosen]
            names, first, numbers = np.unique(sources, return_index=True, return_inverse=True)
            # of a point, not of the source itself: that may be a probe, which has no samples
            matrix = state.correlations([points[chosen[i]] for i in first], objective.metric)
            found.append((objective, names.tolist(), numbers, correlated_errors(matrix)))
        return found

    def draw(chosen: Chosen, rng: np.random.Generator) -> NDArray[np.float64]:
        columns = []
        for objective, names, numbers, factor in shared(tuple(chosen.tolist())):
            errors = factor @ rng.standard_normal(len(names))
            if objective.metric == state.rate_metric:
                for name, error in state.turns.errors(rng).items():
                    if name in names:
                        errors[names.index(name)] = error
            columns.append(errors[numbers])
        return np.stack(columns, axis=1)

    return draw


@dataclass(frozen=True)
class _Limit:
    """Constraint on uncertain values. A baseline among the points has their drawn value."""

    constraint: Constraint
    values: NDArray[np.float64]  # of the points, NaN where the metric was not measured, which is not judged
    deviations: NDArray[np.float64]
    column: int | None  # of the objective that the metric is
    to_metric: Callable[[NDArray[np.float64]], NDArray[np.float64]]  # from drawn losses of that objective
    baseline: tuple[float, float]  # its value and standard deviation
    place: int | None  # of the baseline among the points

    @classmethod
    def of(
        cls, state: RunState, points: Sequence[Trial], constraint: Constraint, logarithmic: set[str]
    ) -> _Limit | None:
        """Return the limit; None: it refers to a baseline that did not measure the metric."""
        metric, first = constraint.metric, state.baseline
        if constraint.of_baseline and (first is None or constraint.given(first.metrics) is None):
            return None
        names = [objective.metric for objective in state.objectives]
        column = names.index(metric) if metric in names else None

        def to_metric(losses: NDArray[np.float64]) -> NDArray[np.float64]:
            signed = state.objectives[column or 0].loss(1.0) * losses
            return np.exp(signed) if metric in logarithmic else signed

        def deviation(trial: Trial) -> float:
            return (state.half_interval(trial, metric) or 0.0) / HALF_95

        baseline = (first.metrics[metric], deviation(first)) if constraint.of_baseline and first else (math.nan, 0.0)
        values = np.array([trial.metrics.get(metric, math.nan) for trial in points])
        place = next((i for i, trial in enumerate(points) if trial is first), None)
        return cls(constraint, values, np.array([deviation(t) for t in points]), column, to_metric, baseline, place)

    @property
    def is_uncertain(self) -> bool:
        """True if the values or that of the baseline have errors, so that it may be violated after all."""
        return bool(self.deviations.any()) or self.baseline[1] > 0

    def is_met(self, chosen: Chosen, losses: Losses, rng: np.random.Generator) -> NDArray[np.bool_]:
        """Draw whether the chosen points meet it, whose drawn losses are given."""
        normal = rng.standard_normal(len(chosen) + 1)
        drawn = self.values[chosen] + self.deviations[chosen] * normal[1:]
        if self.column is not None:
            drawn = self.to_metric(losses[:, self.column])
        value = self.baseline[0] + self.baseline[1] * float(normal[0])
        if self.place is not None and (at := np.flatnonzero(chosen == self.place)).size:
            value = float(drawn[at[0]])
        given = self.constraint.given({self.constraint.metric: value})
        assert given is not None
        beyond = drawn - given.bound if given.operator == "<=" else given.bound - drawn
        return ~(beyond > 0)
