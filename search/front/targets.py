"""Objectives of the form "seconds until val_accuracy is 0.9", computed from the epochs of a trial."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from search.front.objective import Constraint
from search.front.roles import rate_metric
from trainables.contract import TRAINING_SECONDS, Metric

QUANTITIES: dict[str, Literal["seconds", "joules"]] = {"time_to": "seconds", "energy_to": "joules"}  # by key
UNITS = {"seconds": "s", "joules": "J"}
NAME = re.compile(r"(seconds|joules)_to_(\w+?)_(-?\d+(?:\.\d+)?(?:e[-+]?\d+)?)")


@dataclass(frozen=True)
class Target:
    """A value that a metric is to reach, and what it costs to get there."""

    quantity: str  # seconds or joules
    metric: str
    value: float

    @property
    def name(self) -> str:
        """Name of the objective's metric, such as `seconds_to_val_accuracy_0.9`; it holds the whole value."""
        short = f"{self.value:g}"
        return f"{self.quantity}_to_{self.metric}_{short if float(short) == self.value else repr(self.value)}"

    @property
    def best(self) -> str:
        """Name of the metric's best value so far, which a constraint compares with the target."""
        return f"best_{self.metric}"


def target_of(name: str) -> Target | None:
    """Return the target of a metric with such a name; None: it is another metric."""
    match = NAME.fullmatch(name)
    return Target(match[1], match[2], float(match[3])) if match else None


def is_duration(name: str) -> bool:
    """Return whether a metric is the time or energy of a training, which every setting and the machine can change."""
    return name == TRAINING_SECONDS or target_of(name) is not None


def targets_of(names: Iterable[str]) -> list[Target]:
    """Return the targets among these metrics."""
    return [target for target in map(target_of, names) if target is not None]


def as_objective(value: Any) -> Any:
    """Return `{time_to: {val_accuracy: 0.9}}` as an objective with a metric and a goal; one without target as it is.

    Raises:
        ValueError: it is not of this form; the message has the form that was expected.
    """
    key = next((key for key in QUANTITIES if isinstance(value, Mapping) and key in value), None)
    if key is None:
        return value
    inner = value[key]
    if not isinstance(inner, Mapping) or len(inner) != 1:
        raise ValueError(f"{key}: {{METRIC: NUMBER}}, as in {{{key}: {{val_accuracy: 0.9}}}}")
    metric, wanted = next(iter(inner.items()))
    if isinstance(wanted, bool) or not isinstance(wanted, int | float) or not math.isfinite(wanted):
        raise ValueError(f"a finite number to reach, as in {{{key}: {{{metric}: 0.9}}}}")
    if others := ", ".join(str(other) for other in value if other != key):
        raise ValueError(f"{{{key}: {{{metric}: {wanted}}}}} alone, which is always minimized; leave out {others}")
    return {"metric": Target(QUANTITIES[key], str(metric), float(wanted)).name, "goal": "minimize"}


def target_metrics(targets: Iterable[Target], known: Mapping[str, Metric]) -> dict[str, Metric]:
    """Return the metrics that are computed for the targets."""
    found = {}
    for target in targets:
        unit, help = (
            UNITS[target.quantity],
            f"of training until {target.metric} is {target.value:g}; where {target.best} misses that: so far",
        )
        found[target.name] = Metric(unit, help, probed=False)
        of = known.get(target.metric, Metric("", ""))
        found[target.best] = Metric(of.unit, f"best {target.metric} so far", probed=False, role=of.role)
    return found


def target_constraint(target: Target, lower_is_better: bool) -> Constraint:
    """Return the constraint that the target is reached."""
    return Constraint(target.best, "<=" if lower_is_better else ">=", target.value)


def with_targets(
    targets: Iterable[tuple[Target, bool]], before: Mapping[str, float], metrics: Mapping[str, float]
) -> dict[str, float]:
    """Return an epoch's metrics with those of the targets.

    Args:
        targets: each with whether less of its metric is better.
        before: the metrics after the previous epoch, with those of the targets; empty for the first.
        metrics: as the trial reported them.
    """
    found = dict(metrics)
    for target, lower in targets:
        value, best = metrics.get(target.metric, math.nan), before.get(target.best, math.nan)
        spent = before.get(target.name, math.nan if before else 0.0)
        if not _reached(best, target.value, lower):
            spent += _spent(target.quantity, metrics)
        candidates = [each for each in (value, best) if math.isfinite(each)]
        found[target.name] = spent
        if candidates:
            found[target.best] = min(candidates) if lower else max(candidates)
    return found


def _reached(best: float, value: float, lower: bool) -> bool:
    return best <= value if lower else best >= value  # False for NaN


def _spent(quantity: str, metrics: Mapping[str, float]) -> float:
    """Return seconds or joules of the epoch's training, without evaluation; NaN: not measured."""
    seconds = metrics.get("epoch_seconds", math.nan)
    if quantity == "seconds":
        return seconds
    rate = rate_metric(metrics)
    per_joule = metrics.get(f"{rate.removesuffix('_per_second')}_per_joule", math.nan)
    return seconds * metrics.get(rate, math.nan) / per_joule
