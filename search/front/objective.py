"""Objectives and constraints of a study. The only place that turns the sign of "higher is better"."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from search.front.intervals import least_value
from search.front.pareto import reference_point
from trainables.contract import RENAMED_METRICS

WORDS = {"<=": "at most", ">=": "at least"}  # of a constraint's operator


@dataclass(frozen=True)
class Objective:
    """A metric and the direction in which it improves. `probed`: a probe measures it; None: the trainable knows."""

    metric: str
    goal: Literal["maximize", "minimize"]
    probed: bool | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "metric", RENAMED_METRICS.get(self.metric, self.metric))

    def loss(self, value: float) -> float:
        """The value on a scale where lower is better."""
        return value if self.goal == "minimize" else -value


@dataclass(frozen=True)
class Constraint:
    """A bound on a metric, written `metric <= bound` or `metric >= bound`; or as a multiple of the baseline's value."""

    metric: str
    operator: Literal["<=", ">="]
    bound: float
    of_baseline: bool = False  # `bound` is a factor

    def __post_init__(self) -> None:
        object.__setattr__(self, "metric", RENAMED_METRICS.get(self.metric, self.metric))

    def given(self, baseline: Mapping[str, float]) -> Constraint | None:
        """Constraint with its bound in the metric's unit, or None if the baseline did not measure the metric."""
        if not self.of_baseline:
            return self
        value = baseline.get(self.metric, math.nan)
        return Constraint(self.metric, self.operator, self.bound * value) if math.isfinite(value) else None

    def violation(self, value: float) -> float:
        """Amount by which the bound is exceeded, in the metric's unit; zero or less if the constraint holds."""
        return value - self.bound if self.operator == "<=" else self.bound - value

    def excess(self, value: float) -> float:
        """Violation without unit, -4 to 4: the logarithm of the ratio if both are above zero, as for bytes and rates.

        A metric that is a product of its parameters' effects becomes a sum, which needs fewer measurements to predict.
        """
        if min(value, self.bound) > 0:
            ratio = math.log(value / self.bound)
            return max(-4.0, min(4.0, ratio if self.operator == "<=" else -ratio))
        beyond = self.violation(value)
        return beyond / ((abs(self.bound) or 1.0) + abs(beyond))

    def __str__(self) -> str:
        text = f"{self.metric} {self.operator} {self.bound!r}".removesuffix(".0")
        return f"{text} * baseline" if self.of_baseline else text


NUMBER = r"[-+.\deE]+"
CONSTRAINT = re.compile(rf"\s*(\w+)\s*(<=|>=)\s*(?:({NUMBER})|(?:({NUMBER})\s*\*\s*)?baseline)\s*")


def read_constraint(text: str) -> Constraint:
    """Parse `peak_memory_fraction <= 0.9`, or `images_per_second >= 0.95 * baseline`.

    Raises:
        ValueError: the text is not a constraint.
    """
    match = CONSTRAINT.fullmatch(text)
    if match is None or not math.isfinite(bound := float(match[3] or match[4] or 1.0)):
        raise ValueError(f"not a constraint: {text}")
    return Constraint(match[1], "<=" if match[2] == "<=" else ">=", bound, of_baseline=match[3] is None)


def measured(metrics: Mapping[str, float], objectives: Sequence[Objective]) -> bool:
    """Check that every objective has a finite value; only such a trial can be on a front."""
    return all(math.isfinite(metrics.get(o.metric, math.nan)) for o in objectives)


def losses(rows: Sequence[Mapping[str, float]], objectives: Sequence[Objective]) -> NDArray[np.float64]:
    """Losses of measured rows, shape (num_rows, num_objectives), lower is better."""
    table = [[o.loss(row[o.metric]) for o in objectives] for row in rows]
    return np.array(table, dtype=float).reshape(len(rows), len(objectives))


def reference_metrics(losses: NDArray[np.float64], objectives: Sequence[Objective]) -> dict[str, float]:
    """Return the `reference_point` of these losses as values of the metrics; a rate is not below zero."""
    # a loss turned round once more is the metric again; 0 is added so that there is no -0
    pairs = zip(objectives, reference_point(losses).tolist(), strict=True)
    return {o.metric: max(o.loss(loss), least_value(o.metric)) + 0.0 for o, loss in pairs}
