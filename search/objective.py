"""What a study optimises. The only place where "higher is better" is turned round."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Objective:
    """A metric and the direction in which it improves. `probed`: a probe measures it; None: the trainable knows."""

    metric: str
    goal: Literal["maximize", "minimize"]
    probed: bool | None = None

    def loss(self, value: float) -> float:
        """The value on a scale where lower is better."""
        return value if self.goal == "minimize" else -value


@dataclass(frozen=True)
class Constraint:
    """A bound on a metric, written `metric <= bound` or `metric >= bound`."""

    metric: str
    operator: Literal["<=", ">="]
    bound: float

    def violation(self, value: float) -> float:
        """How far beyond the bound, in the metric's unit; zero or less: kept."""
        return value - self.bound if self.operator == "<=" else self.bound - value

    def __str__(self) -> str:
        return f"{self.metric} {self.operator} {self.bound!r}".removesuffix(".0")


def measured(metrics: Mapping[str, float], objectives: Sequence[Objective]) -> bool:
    """Whether every objective has a finite value: only then can a trial have a place on a front."""
    return all(math.isfinite(metrics.get(o.metric, math.nan)) for o in objectives)


def losses(rows: Sequence[Mapping[str, float]], objectives: Sequence[Objective]) -> NDArray[np.float64]:
    """Losses of measured rows, shape (num_rows, num_objectives), lower is better."""
    table = [[o.loss(row[o.metric]) for o in objectives] for row in rows]
    return np.array(table, dtype=float).reshape(len(rows), len(objectives))
