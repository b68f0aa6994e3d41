"""Trials that may be compared, and the Pareto front among them: one rule for the search and for the report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from search.front.objective import Constraint, Objective, losses, measured
from search.front.pareto import front_order
from trainables.contract import EPOCHS

NOT_COMPARED = "violates a constraint, lacks an objective or has fewer epochs than others"


class Comparable(Protocol):
    """A trial of a run that goes on or has ended."""

    @property
    def state(self) -> str | None:
        """`complete`, or why it is not compared."""

    @property
    def kind(self) -> str:
        """`train` or `probe`."""

    @property
    def config(self) -> Mapping[str, Any]:
        """Settings of the trial."""

    @property
    def epochs(self) -> int:
        """Epochs measured."""

    @property
    def metrics(self) -> Mapping[str, float]:
        """The last measurement."""


T = TypeVar("T", bound=Comparable)


def candidates(
    trials: Iterable[T],
    objectives: Sequence[Objective],
    constraints: Iterable[Constraint],
    baseline: Mapping[str, float],
    is_probe_run: bool,
) -> list[T]:
    """Trials that may be compared: complete, all objectives measured, all constraints met, `fully_trained`.

    A probe is compared only in a run whose trials are probes.
    """
    constraints = list(constraints)
    found = [
        trial
        for trial in trials
        if trial.state == "complete"
        and (is_probe_run or trial.kind != "probe")
        and measured(trial.metrics, objectives)
        and not violated(trial.metrics, constraints, baseline)
    ]
    return fully_trained(found)


def violated(
    metrics: Mapping[str, float], constraints: Iterable[Constraint], baseline: Mapping[str, float]
) -> list[Constraint]:
    """Return the constraints that these metrics violate.

    One on a metric that was not measured, of the trial or of the `baseline`, is not judged.
    """
    pairs = [(constraint, constraint.given(baseline)) for constraint in constraints]
    return [c for c, given in pairs if given and given.violation(metrics.get(c.metric, math.nan)) > 0]


def fully_trained(trials: Iterable[T]) -> list[T]:
    """Return the trials with the most epochs among those with the same setting of `epochs`."""
    trials = list(trials)
    longest = dict[Any, int]()
    for trial in trials:
        length = trial.config.get(EPOCHS)
        longest[length] = max(longest.get(length, 0), trial.epochs)
    return [trial for trial in trials if trial.epochs == longest[trial.config.get(EPOCHS)]]


def pareto_front(compared: Sequence[T], objectives: Sequence[Objective], layers: int = 1) -> list[T]:
    """The candidates on the first `layers` fronts, best in the first objective first."""
    if not compared:
        return []
    return [compared[i] for i in front_order(losses([trial.metrics for trial in compared], objectives), layers)]
