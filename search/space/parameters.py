"""Parameters of a search: a choice of values or a range, optionally active only `when` others have given values."""

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, GetPydanticSchema, Tag
from pydantic_core import PydanticCustomError

from search.front.objective import Constraint
from search.limits import MAX_INTEGER
from search.space.validation import KeyPath, Problem
from trainables import contract
from trainables.setting_check import did_you_mean, format_value, list_choices, mistake_in

# Strict: "12" and true are not ints. YAML has no tuples and dataclasses, so these fields accept lists and mappings.
STRICT = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False)
LIST_TO_TUPLE = Field(strict=False)
MAPPING_TO_DATACLASS = GetPydanticSchema(
    lambda source, handler: {**handler.resolve_ref_schema(handler(source)), "strict": False}
)


def _scalar(value: Any) -> contract.Scalar:
    if isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise PydanticCustomError("expected", "a finite number, a string, true or false")


def _number(value: Any) -> int | float:
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return value
    raise PydanticCustomError("expected", "a finite number")


def _ends(value: Any) -> Any:
    """Return the ends of a range that is given as "0.01 to 0.1"."""
    found = re.fullmatch(r"\s*(\S+)\s+to\s+(\S+)\s*", value) if isinstance(value, str) else None
    try:
        ends = [float(end) for end in found.groups()] if found else value
    except ValueError:
        ends = None
    if not isinstance(ends, list | tuple) or len(ends) != 2:
        raise PydanticCustomError("expected", "two numbers, as in 0.01 to 0.1")
    return ends


Scalar = Annotated[contract.Scalar, BeforeValidator(_scalar)]
Scalars = Annotated[tuple[Scalar, ...], LIST_TO_TUPLE]
ScalarOrScalars = Annotated[
    Scalars,
    BeforeValidator(
        lambda value: value if isinstance(value, list | tuple) else (value,),
        json_schema_input_type=contract.Scalar | list[contract.Scalar],
    ),
]
Number = Annotated[int | float, BeforeValidator(_number)]
Ends = Annotated[
    tuple[Number, Number], LIST_TO_TUPLE, BeforeValidator(_ends, json_schema_input_type=str | tuple[float, float])
]
Condition = dict[str, ScalarOrScalars]


class Choice(BaseModel):
    """One of `values`. Active only while every parameter named in `when` has one of the values given there.

    `likely`: the values among which the user expects the best configurations; empty: any.
    """

    model_config = STRICT
    values: Scalars
    likely: ScalarOrScalars = ()
    when: Condition = {}
    affects: contract.Affects | None = None  # None: as the trainable says

    def contains(self, value: contract.Scalar) -> bool:
        """Return whether the parameter can have this value."""
        return value in self.values

    @property
    def is_ordinal(self) -> bool:
        """True for numbers (64, 128, 256, ...), where neighbouring values have similar effects."""
        return all(isinstance(value, int | float) and not isinstance(value, bool) for value in self.values)

    @property
    def ordered_values(self) -> list[contract.Scalar]:
        """Values in the order of their indices: numbers ascending, names as listed."""
        return sorted(self.values) if self.is_ordinal else list(self.values)


class Range(BaseModel):
    """A number from `min` to `max`, both included; `log`: equal ratios are equally likely.

    `likely`: the ends of the part in which the user expects the best configurations; None: anywhere.
    """

    model_config = STRICT
    min: Number
    max: Number
    log: bool = False
    type: Literal["float", "int"] = "float"
    likely: Ends | None = None
    when: Condition = {}
    affects: contract.Affects | None = None  # None: as the trainable says

    def contains(self, value: contract.Scalar) -> bool:
        """Return whether the parameter can have this value."""
        if isinstance(value, str | bool) or (self.type == "int" and not isinstance(value, int)):
            return False
        return self.min <= value <= self.max

    def value_at(self, fraction: float) -> int | float:
        """Return the number at a fraction of the range: 0 is `min`, 1 is `max`."""
        x = self.min * (self.max / self.min) ** fraction if self.log else self.min + fraction * (self.max - self.min)
        x = min(max(x, self.min), self.max) if fraction < 1 else self.max  # a sum may round to less
        return round(x) if self.type == "int" else float(x)


def _discriminate(value: Any) -> str:
    """Return the tag: a mapping with `values` is a choice, otherwise one with a key of a range is a range."""
    if isinstance(value, Choice | Range):
        return f"<{type(value).__name__}>"
    keys = set(value) if isinstance(value, Mapping) else set()
    return "<Range>" if "values" not in keys and keys & {"min", "max", "log", "type"} else "<Choice>"


def _check_form(value: Any) -> Any:
    if not isinstance(value, Mapping | Choice | Range):
        form = "{values: [...]} or {min: ..., max: ...}; one value alone belongs under fixed"
        raise PydanticCustomError("expected", form)
    if isinstance(value, Mapping) and "values" in value and ("min" in value or "max" in value):
        raise PydanticCustomError("expected", "values, or else min and max, not both")
    if isinstance(value, Mapping) and "bears_on" in value:  # the old name
        return {**{key: x for key, x in value.items() if key != "bears_on"}, "affects": value["bears_on"]}
    return value


AnyParameter = Annotated[
    Annotated[Choice, Tag("<Choice>")] | Annotated[Range, Tag("<Range>")],
    Discriminator(_discriminate),
    BeforeValidator(_check_form),
]


def sort_by_dependency(parameters: Mapping[str, Choice | Range]) -> dict[str, Choice | Range]:
    """Sort parameters so that each comes after those that its `when` names.

    Raises:
        graphlib.CycleError: some depend on each other.
    """
    predecessors = {name: [other for other in p.when if other in parameters] for name, p in parameters.items()}
    return {name: parameters[name] for name in TopologicalSorter(predecessors).static_order()}


def explain_unsatisfiable(
    condition: Mapping[str, tuple[contract.Scalar, ...]],
    parameters: Mapping[str, Choice | Range],
    fixed: Mapping[str, contract.Scalar],
) -> str | None:
    """Say why no configuration meets the condition; None: some may."""
    for name, wanted in condition.items():
        known = parameters.get(name)
        if not any(known.contains(value) if known else name in fixed and fixed[name] == value for value in wanted):
            return f"{name} is never {' or '.join(format_value(value) for value in wanted)}"
    return None


def unknown_setting(path: KeyPath, known: Collection[str], owner: str) -> Problem:
    """Return the problem that the trainable `owner` has no setting of this name, with the nearest that it has."""
    return Problem(path, f'{owner} has no "{path[-1]}"{did_you_mean(path[-1], known)}')


def find_parameter_problems(
    parameters: Mapping[str, Choice | Range],
    fixed: Mapping[str, contract.Scalar],
    known: Mapping[str, contract.Parameter] | None,
    owner: str,
) -> Iterator[Problem]:
    """Find invalid parameters, given those that the trainable `owner` knows; None: it accepts any."""
    for name, parameter in parameters.items():
        path: KeyPath = ("parameters", name)
        if name in fixed:
            yield Problem(("fixed", name), f"{name} is searched under parameters too; keep one of the two")
        if known is not None and name not in known:
            yield unknown_setting(path, known, owner)
            continue
        yield from _domain_problems(parameter, path)
        yield from _condition_problems(name, parameters, fixed)
        if known is not None:
            yield from _trainable_problems(parameter, known[name], path)
    for name, value in fixed.items():
        if known is not None and name not in known:
            yield unknown_setting(("fixed", name), known, owner)
        elif known is not None:
            yield from _value_problems(value, known[name], ("fixed", name))
    try:
        sort_by_dependency(parameters)
    except CycleError as error:
        names = [name for name in parameters if name in error.args[1]]
        if len(names) > 1:  # one alone is told above
            yield Problem(("parameters", names[0], "when"), f"{' and '.join(names)} depend on each other")


def find_baseline_problems(
    baseline: Mapping[str, contract.Scalar],
    parameters: Mapping[str, Choice | Range],
    fixed: Mapping[str, contract.Scalar],
    constraints: Sequence[Constraint],
    known: Mapping[str, contract.Parameter] | None,
) -> Iterator[Problem]:
    """Find what keeps a baseline from being a configuration of the space; an empty baseline is none.

    `known`: parameters of the trainable; None: it accepts any.
    """
    for i, constraint in enumerate(constraints):
        if constraint.of_baseline and not baseline:
            yield Problem(("constraints", i), "there is no baseline; give one, e.g. baseline: {batch_size: 128, ...}")
    for name, value in baseline.items():
        if name not in parameters:
            yield Problem(("baseline", name), f"{name} is not searched; leave it out")
        elif known is not None and name in known:
            yield from _value_problems(value, known[name], ("baseline", name))
    values = {**fixed, **baseline}
    missing = list[str]()
    for name, parameter in parameters.items() if baseline else ():
        active = all(values.get(other) in wanted for other, wanted in parameter.when.items())
        if active and name not in baseline:
            missing.append(name)
        elif name in baseline and not active:
            yield Problem(("baseline", name), f"{name} is inactive in the baseline; leave it out")
        elif active and not parameter.contains(baseline[name]):
            yield Problem(("baseline", name), f"{format_value(baseline[name])} is outside the searched values")
    if missing:
        words = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
        yield Problem(("baseline",), f"{words}; a baseline sets every searched parameter")


def _domain_problems(parameter: Choice | Range, path: KeyPath) -> Iterator[Problem]:
    if isinstance(parameter, Choice):
        if not parameter.values:
            yield Problem((*path, "values"), "an empty list; give at least one value")
        for i, value in enumerate(parameter.values):
            if value in parameter.values[:i]:
                yield Problem((*path, "values", i), f"{format_value(value)} is listed twice; values must differ")
        for value in parameter.likely:
            if value not in parameter.values:
                yield Problem((*path, "likely"), f"{format_value(value)} is not among the values")
        return
    for end, value in (("min", parameter.min), ("max", parameter.max)):
        if parameter.type == "int" and not isinstance(value, int):
            whole = f"the ends of an int range are whole numbers, for example {round(value)}"
            yield Problem((*path, end), f"found {value}; {whole}")
    if parameter.min >= parameter.max:
        yield Problem(path, f"an empty range: min {parameter.min} is not below max {parameter.max}")
    too_large = parameter.type == "int" and max(abs(parameter.min), abs(parameter.max)) >= MAX_INTEGER
    if too_large or not math.isfinite(parameter.max - parameter.min):
        yield Problem(path, "a range too large to be searched; give its ends by smaller numbers")
    if parameter.log and parameter.min <= 0:
        yield Problem((*path, "min"), f"found {parameter.min}; a log range starts above 0")
    elif parameter.log and parameter.max / parameter.min == math.inf:
        yield Problem(path, "a range too large to be searched; give its ends by nearer numbers")
    if parameter.likely and not parameter.min <= parameter.likely[0] < parameter.likely[1] <= parameter.max:
        low, high = parameter.likely
        yield Problem(
            (*path, "likely"), f"found {low:g} to {high:g}; expected a part of {parameter.min:g} to {parameter.max:g}"
        )


def _condition_problems(
    name: str, parameters: Mapping[str, Choice | Range], fixed: Mapping[str, contract.Scalar]
) -> Iterator[Problem]:
    for other, values in parameters[name].when.items():
        path: KeyPath = ("parameters", name, "when", other)
        if other == name:
            yield Problem(path, f"{name} depends on itself; name another parameter")
        elif other not in parameters and other not in fixed:
            yield Problem(path, f'no parameter "{other}" here{did_you_mean(other, [*parameters, *fixed])}')
        elif not values:
            yield Problem(path, "an empty list; give at least one value")
        elif other in parameters:
            domain = parameters[other]
            if isinstance(domain, Range) and domain.type == "float":
                yield Problem(
                    path, f"{other} is a range, which hardly ever has one value; give {other} a list of values"
                )
                continue
            for value in (value for value in values if not domain.contains(value)):
                if isinstance(domain, Range):
                    hint = f"; it goes from {domain.min} to {domain.max}"
                else:
                    hint = did_you_mean(value, [f"{v}" for v in domain.values])
                yield Problem(path, f"{other} is never {format_value(value)}{hint}")


def _trainable_problems(parameter: Choice | Range, known: contract.Parameter, path: KeyPath) -> Iterator[Problem]:
    if isinstance(parameter, Choice):
        for i, value in enumerate(parameter.values):
            yield from _value_problems(value, known, (*path, "values", i))
    elif known.choices or known.type in ("str", "bool"):
        yield Problem(path, f"a range is not possible here; give values among {list_choices(known)}")
    else:
        if known.type == "int" and parameter.type != "int":
            yield Problem((*path, "type"), f'found "{parameter.type}"; expected int, as {path[-1]} is a whole number')
        for end in ("min", "max"):
            yield from _value_problems(getattr(parameter, end), known, (*path, end))


def _value_problems(value: contract.Scalar, known: contract.Parameter, path: KeyPath) -> Iterator[Problem]:
    if mistake := mistake_in(value, known):
        yield Problem(path, mistake)
