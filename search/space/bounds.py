"""Constraints and the baseline as a space file says them: text to `Constraint` and back, and their faults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer
from pydantic_core import PydanticCustomError

from search.front.objective import Constraint, constraint_text, read_constraint
from search.space.faults import Fault, shown
from search.space.parameters import Choice, Range
from trainables.contract import Scalar


def _constraint(value: Any) -> Constraint:
    try:
        return value if isinstance(value, Constraint) else read_constraint(value)
    except (TypeError, ValueError):
        message = '"METRIC <= NUMBER", "METRIC >= NUMBER" or "METRIC >= NUMBER * baseline"'
        raise PydanticCustomError("expected", message) from None


Bound = Annotated[Constraint, BeforeValidator(_constraint), PlainSerializer(constraint_text)]


def baseline_faults(
    baseline: Mapping[str, Scalar],
    parameters: Mapping[str, Choice | Range],
    fixed: Mapping[str, Scalar],
    constraints: Sequence[Constraint],
) -> Iterator[Fault]:
    """Whatever keeps `baseline`, which may be empty, from being a configuration of the space."""
    for i, constraint in enumerate(constraints):
        if constraint.of_baseline and not baseline:
            yield Fault(("constraints", i), "there is no baseline; give one, e.g. baseline: {batch_size: 128, ...}")
    for name in baseline:
        if name not in parameters:
            yield Fault(("baseline", name), f"{name} is not searched; leave it out")
    if not baseline:
        return
    values = {**fixed, **baseline}
    for name, parameter in parameters.items():
        active = all(values.get(other) in wanted for other, wanted in parameter.when.items())
        if active and name not in baseline:
            yield Fault(("baseline",), f"{name} is missing; a baseline says all that is searched")
        elif name in baseline and not active:
            yield Fault(("baseline", name), f"{name} is not in play there; leave it out")
        elif active and not parameter.takes(baseline[name]):
            yield Fault(("baseline", name), f"{shown(baseline[name])} is not among what is searched")
