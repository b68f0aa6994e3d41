"""Parameters of a search: a choice of values or a range, each perhaps only `when` others have certain values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetPydanticSchema,
    PlainValidator,
    Tag,
)
from pydantic_core import PydanticCustomError

from search.space.faults import Fault, KeyPath, SpaceError, nearest, shown
from trainables import contract

# Strict: "12" and true are no int. Yet YAML has lists and mappings only: tuples and dataclasses are made of them.
STRICT = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False)
Listed = Field(strict=False)
Mapped = GetPydanticSchema(lambda source, handler: {**handler.resolve_ref_schema(handler(source)), "strict": False})


def _scalar(value: Any) -> contract.Scalar:
    if isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise PydanticCustomError("expected", "a finite number, a word, true or false")


def _number(value: Any) -> int | float:
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return value
    raise PydanticCustomError("expected", "a finite number")


def _list(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else (value,)


Scalar = Annotated[contract.Scalar, PlainValidator(_scalar)]
Scalars = Annotated[tuple[Scalar, ...], Listed]
Number = Annotated[int | float, PlainValidator(_number)]
BearsOn = Literal["all", "probed", "trained"] | None  # metrics; None: as the trainable says
Condition = dict[str, Annotated[Scalars, BeforeValidator(_list)]]


class Choice(BaseModel):
    """One of `values`; only where every parameter named in `when` has one of the values given there."""

    model_config = STRICT
    values: Scalars
    when: Condition = {}
    bears_on: BearsOn = None

    def takes(self, value: contract.Scalar) -> bool:
        """Whether the parameter can have this value."""
        return value in self.values

    @property
    def is_ladder(self) -> bool:
        """Whether the values are numbers: 64, 128, 256, ...; what is good beside 256 is likely to be 128 or 512."""
        return all(isinstance(value, int | float) and not isinstance(value, bool) for value in self.values)

    @property
    def options(self) -> list[contract.Scalar]:
        """The values in the order in which they are numbered: a ladder from the lowest up, names as listed."""
        return sorted(self.values) if self.is_ladder else list(self.values)


class Range(BaseModel):
    """A number from `min` to `max`, both included; `log`: equal ratios are equally likely."""

    model_config = STRICT
    min: Number
    max: Number
    log: bool = False
    type: Literal["float", "int"] = "float"
    when: Condition = {}
    bears_on: BearsOn = None

    def takes(self, value: contract.Scalar) -> bool:
        """Whether the parameter can have this value."""
        return not isinstance(value, str) and self.min <= value <= self.max

    def at(self, place: float) -> int | float:
        """The number at a place between 0, where `min` is, and 1, where `max` is."""
        x = self.min * (self.max / self.min) ** place if self.log else self.min + place * (self.max - self.min)
        x = min(max(x, self.min), self.max)
        return round(x) if self.type == "int" else x


def _kind(value: Any) -> str:
    """The tag of what was meant: whatever has `values` is a choice, else whatever has a key of a range is a range."""
    if isinstance(value, Choice | Range):
        return f"<{type(value).__name__}>"
    keys = set(value) if isinstance(value, Mapping) else set()
    return "<Range>" if "values" not in keys and keys & {"min", "max", "log", "type"} else "<Choice>"


def _one_way(value: Any) -> Any:
    if not isinstance(value, Mapping | Choice | Range):
        way = "{values: [...]} or {min: ..., max: ...}; one value alone belongs under fixed"
        raise PydanticCustomError("expected", way)
    if isinstance(value, Mapping) and "values" in value and ("min" in value or "max" in value):
        raise PydanticCustomError("expected", "values, or else min and max, not both")
    return value


AnyParameter = Annotated[
    Annotated[Choice, Tag("<Choice>")] | Annotated[Range, Tag("<Range>")],
    Discriminator(_kind),
    BeforeValidator(_one_way),
]


def ordered(parameters: Mapping[str, Choice | Range]) -> dict[str, Choice | Range]:
    """The same, each after those that its `when` names.

    Raises:
        graphlib.CycleError: some wait for each other.
    """
    above = {name: [other for other in p.when if other in parameters] for name, p in parameters.items()}
    return {name: parameters[name] for name in TopologicalSorter(above).static_order()}


def unmet(
    condition: Mapping[str, tuple[contract.Scalar, ...]],
    parameters: Mapping[str, Choice | Range],
    fixed: Mapping[str, contract.Scalar],
) -> str | None:
    """Why no configuration meets the condition; None: some may."""
    for name, wanted in condition.items():
        takes = parameters[name].takes if name in parameters else (fixed[name],).__contains__ if name in fixed else None
        if takes is None or not any(takes(value) for value in wanted):
            return f"{name} is never {' or '.join(shown(value) for value in wanted)}"
    return None


def parameter_faults(
    parameters: Mapping[str, Choice | Range],
    fixed: Mapping[str, contract.Scalar],
    known: Mapping[str, contract.Parameter] | None,
    owner: str,
) -> Iterator[Fault]:
    """All that is wrong with them, given the parameters that the trainable `owner` knows; None: it takes any."""
    for name, parameter in parameters.items():
        at: KeyPath = ("parameters", name)
        if name in fixed:
            yield Fault(("fixed", name), f"{name} is searched under parameters too; keep one of the two")
        if known is not None and name not in known:
            yield Fault(at, f'{owner} has no "{name}"{nearest(name, known)}')
            continue
        yield from _own_faults(parameter, at)
        yield from _when_faults(name, parameters, fixed)
        if known is not None:
            yield from _foreign_faults(parameter, known[name], at)
    for name, value in fixed.items():
        if known is not None and name not in known:
            yield Fault(("fixed", name), f'{owner} has no "{name}"{nearest(name, known)}')
        elif known is not None:
            yield from _value_faults(value, known[name], ("fixed", name))
    try:
        ordered(parameters)
    except CycleError as error:
        names = [name for name in parameters if name in error.args[1]]
        yield Fault(("parameters", names[0], "when"), f"{' and '.join(names)} wait for each other")


def _own_faults(parameter: Choice | Range, at: KeyPath) -> Iterator[Fault]:
    if isinstance(parameter, Choice):
        if not parameter.values:
            yield Fault((*at, "values"), "an empty list; give at least one value")
        for i, value in enumerate(parameter.values):
            if value in parameter.values[:i]:
                yield Fault((*at, "values", i), f"{shown(value)} is there twice; values must differ")
        return
    if parameter.type == "int":
        for end in ("min", "max"):
            if not isinstance(value := getattr(parameter, end), int):
                yield Fault((*at, end), f"found {value}; the ends of an int range are whole numbers, as {round(value)}")
    if parameter.min >= parameter.max:
        yield Fault(at, f"an empty range: min {parameter.min} is not below max {parameter.max}")
    if parameter.log and parameter.min <= 0:
        yield Fault((*at, "min"), f"found {parameter.min}; a log range starts above 0")


def _when_faults(
    name: str, parameters: Mapping[str, Choice | Range], fixed: Mapping[str, contract.Scalar]
) -> Iterator[Fault]:
    for other, values in parameters[name].when.items():
        at: KeyPath = ("parameters", name, "when", other)
        if other == name:
            yield Fault(at, f"{name} waits for itself; name another parameter")
        elif other not in parameters and other not in fixed:
            yield Fault(at, f'no parameter "{other}" here{nearest(other, [*parameters, *fixed])}')
        elif not values:
            yield Fault(at, "an empty list; give at least one value")
        elif other in parameters:
            parameter = parameters[other]
            for value in values:
                if not parameter.takes(value):
                    yield Fault(at, f"{other} is never {shown(value)}{_takes(parameter, value)}")


def _takes(parameter: Choice | Range, value: contract.Scalar) -> str:
    if isinstance(parameter, Range):
        return f"; it goes from {parameter.min} to {parameter.max}"
    return nearest(value, [f"{v}" for v in parameter.values])


def _foreign_faults(parameter: Choice | Range, known: contract.Parameter, at: KeyPath) -> Iterator[Fault]:
    """What the trainable would not take."""
    if isinstance(parameter, Choice):
        for i, value in enumerate(parameter.values):
            yield from _value_faults(value, known, (*at, "values", i))
    elif known.choices or known.type in ("str", "bool"):
        yield Fault(at, f"a range has no meaning here; give values among {_names(known)}")
    else:
        if known.type == "int" and parameter.type != "int":
            yield Fault((*at, "type"), f'found "{parameter.type}"; expected int, as {at[-1]} is a whole number')
        for end in ("min", "max"):
            yield from _bound_faults(getattr(parameter, end), known, (*at, end))


def _value_faults(value: contract.Scalar, known: contract.Parameter, at: KeyPath) -> Iterator[Fault]:
    python_type = {"int": int, "float": int | float, "str": str, "bool": bool}[known.type]
    if not isinstance(value, python_type) or (isinstance(value, bool) and known.type != "bool"):
        expected = _names(known) or {"int": "a whole number", "float": "a number", "str": "a word"}[known.type]
        yield Fault(at, f"found {shown(value)}; expected {expected}")
    elif known.choices and value not in known.choices:
        yield Fault(at, f"found {shown(value)}{nearest(value, [f'{choice}' for choice in known.choices])}")
    elif not isinstance(value, str):
        yield from _bound_faults(value, known, at)


def _bound_faults(value: float, known: contract.Parameter, at: KeyPath) -> Iterator[Fault]:
    if known.low is not None and value < known.low:
        yield Fault(at, f"found {value}; expected at least {known.low:g}")
    if known.high is not None and value > known.high:
        yield Fault(at, f"found {value}; expected at most {known.high:g}")


def _names(known: contract.Parameter) -> str:
    return "true or false" if known.type == "bool" else ", ".join(f"{choice}" for choice in known.choices)


def restricted(
    name: str, parameter: Choice | Range, refusal: Callable[[str, contract.Scalar], str | None]
) -> tuple[Choice | Range, list[str]]:
    """The parameter with the values that are not refused, and a line for each other; `refusal` says why, if it does.

    Raises:
        SpaceError: nothing is left.
    """
    if isinstance(parameter, Range):
        return parameter, []
    reasons = [refusal(name, value) for value in parameter.values]
    lines = [f"{name} {value}: {reason}" for value, reason in zip(parameter.values, reasons, strict=True) if reason]
    values = tuple(value for value, reason in zip(parameter.values, reasons, strict=True) if not reason)
    if not values:
        raise SpaceError(f"parameters.{name}: no value of it can be used here: {'; '.join(lines)}")
    return parameter.model_copy(update={"values": values}), lines
