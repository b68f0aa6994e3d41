"""Types of the fields of events, with their checks; what earlier versions wrote becomes what the present one writes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, PlainValidator
from typing_extensions import TypedDict

from search.front.objective import read_constraint
from search.limits import MAX_COUNT, MAX_INTEGER
from search.space.budget import Budget, Count
from search.space.machine import Machine
from search.states import Kind
from trainables.contract import RENAMED_METRICS, Scalar

LATEST = 2.0**33  # seconds since 1970, in the year 2242: later dates have no nanoseconds
NO_MACHINE = Machine("unknown", 1, 0.0)  # of a journal that does not say where it was made
STRICT = ConfigDict(strict=True, allow_inf_nan=False)


def _current_metrics(metrics: dict[str, Any]) -> dict[str, Any]:
    """Give metrics their present names, and replace null, which stands for a value that is not finite, by NaN."""
    if None in metrics.values() or not RENAMED_METRICS.keys().isdisjoint(metrics):
        return {RENAMED_METRICS.get(name, name): math.nan if x is None else x for name, x in metrics.items()}
    return metrics


def _current_space(space: Any) -> Any:
    """Replace successive halving, a stopping rule of earlier versions, by forecasts, and leave out its settings."""
    if not isinstance(space, Mapping) or not isinstance(stopping := space.get("stopping"), Mapping):
        return space
    kept = {key: x for key, x in stopping.items() if key not in ("grace_epochs", "reduction_factor")}
    return {**space, "stopping": kept | ({"name": "forecast"} if kept.get("name") == "halving" else {})}


def _check_scalar(value: Any) -> Any:
    if not math.isfinite(value) if isinstance(value, float) else isinstance(value, int) and abs(value) >= MAX_INTEGER:
        raise ValueError("expected a number")
    if not (value is None or isinstance(value, str | int | float)):
        raise ValueError("expected a number, a word, true or false")
    return value


def _check_parameter(stated: dict[str, Any]) -> dict[str, Any]:
    """Check what commands read of a parameter; the rest is checked where a run goes on."""
    ends = [stated[name] for name in ("min", "max") if name in stated]
    if len(ends) == 1 or not all(type(end) in (int, float) and math.isfinite(end) for end in ends):
        raise ValueError("expected a number each as min and max")
    if not isinstance(stated.get("when"), dict | None):
        raise ValueError("when: expected a mapping")
    return stated


class RecordedBudget(Budget):
    """Budget of a run; one of a later version may have more keys."""

    model_config = ConfigDict(**STRICT, extra="ignore")


def _null_is(empty: Any) -> BeforeValidator:
    """Return the mark of a field in which null stands for the empty value."""
    return BeforeValidator(lambda value: empty if value is None else value)


if TYPE_CHECKING:
    Metrics = dict[str, float]
else:
    Metrics = Annotated[dict[str, float | None], AfterValidator(_current_metrics)]
Setting = Annotated[Scalar, PlainValidator(_check_scalar)]
Config = dict[str, Setting]
Word = Annotated[str, _null_is("")]
Words = Annotated[list[str], _null_is([])]
Constraints = Annotated[list[Annotated[str, AfterValidator(lambda text: read_constraint(text) and text)]], _null_is([])]
Section = Annotated[dict[str, Any], _null_is({})]
Parameters = Annotated[dict[str, Annotated[dict[str, Any], AfterValidator(_check_parameter)]], _null_is({})]
Texts = Annotated[dict[str, str], _null_is({})]
Units = Annotated[Texts, AfterValidator(_current_metrics)]
TrialKind = Annotated[Kind, _null_is("train")]
Time = Annotated[float, Field(ge=0, lt=LATEST)]
Number = Annotated[int, Field(ge=0, lt=MAX_COUNT)]
Rates = tuple[Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)]]
TrialId = Annotated[str, Field(pattern=r"^[a-z]\d{1,9}$")]  # also the name of a folder


@dataclass(frozen=True, slots=True)
class RecordedData:
    """Name and description of the data of a run."""

    name: str
    description: str = ""


class DataSettings(TypedDict, total=False):
    """Section `data` of a space file."""

    name: str | None
    root: str | None
    train_images: Count | None
    val_images: Count | None


class RecordedSpace(TypedDict, total=False):
    """Space of a run, as the mapping from which it is resumed."""

    __pydantic_config__ = ConfigDict(**STRICT, extra="allow")  # type: ignore[misc]
    trainable: str | None
    constraints: Constraints
    budget: Section
    parameters: Parameters
    fixed: Config | None
    data: Annotated[DataSettings, _null_is({})]
    evaluation: str | None
    concurrent_trials: Count | None


Space = Annotated[RecordedSpace | None, BeforeValidator(_current_space)]
