"""Events of a journal as dataclasses, and the parser of its lines.

A journal may come from anyone, or be damaged: known fields are checked, unknown fields and events are tolerated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, Union, get_args

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from search.front.affects import is_learned, without_effect
from search.front.objective import Objective
from search.record.fields import (
    NO_MACHINE,
    STRICT,
    Config,
    Constraints,
    DataSettings,
    Metrics,
    Number,
    Rates,
    RecordedBudget,
    RecordedData,
    Setting,
    Space,
    Texts,
    Time,
    TrialId,
    TrialKind,
    Units,
    Word,
    Words,
)
from search.space.machine import Machine
from search.space.validation import dotted_key, translate_error
from search.states import State
from trainables.contract import Scalar, Verdict

NO_SAMPLES: dict[str, str] = {}  # one for all measurements but the last ones of trials
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")  # would move a terminal's cursor, or be no text


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    time: Time


@dataclass(frozen=True, slots=True, kw_only=True)
class _TrialEvent(_Event):
    trial_id: TrialId


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening(_Event):
    """First line of a journal: the task of the run, its machine and its versions."""

    event: Literal["run"]
    name: str
    objectives: Annotated[list[Objective], Field(min_length=1)]
    data: RecordedData
    space: Space = None
    trainable: Word = ""
    source: Word = ""  # digest of a user's training file
    constraints: Constraints = field(default_factory=list)
    budget: RecordedBudget | None = None
    grid_points: Number | None = None
    num_configs: Number | None = None  # None: too many to be counted
    metrics: Units = field(default_factory=dict)
    machine: Machine = NO_MACHINE
    versions: Texts = field(default_factory=dict)
    commit: str | None = None
    command: Words = field(default_factory=list)
    left_out: Words = field(default_factory=list)
    auto: Texts = field(default_factory=dict)  # what the value `auto` of settings stood for
    defaults: Config = field(default_factory=dict)  # of settings; empty in runs of earlier versions
    space_file: str | None = None
    seed: Any = None

    def missing(self, names: Iterable[str]) -> list[str]:
        """Return which of these fields say nothing."""
        return [name for name in names if getattr(self, name) in (None, "", [], {}, NO_MACHINE)]

    @property
    def stated_probed(self) -> list[str]:
        """Metrics of which the space says that a probe measures them."""
        return [objective.metric for objective in self.objectives if objective.probed]

    def is_learned(self, metric: str) -> bool:
        """Return whether the metric takes training, as `search.front.affects` has it."""
        return is_learned(self.trainable, metric, self.stated_probed)

    def without_effect(self, metric: str) -> set[str]:
        """Return the settings that cannot change the metric."""
        return without_effect(self.trainable, self.parameters, metric, self.stated_probed)

    @property
    def parameters(self) -> dict[str, dict[str, Any]]:
        """Section `parameters` of the space: what the search chooses."""
        return (self.space or {}).get("parameters") or {}

    @property
    def fixed(self) -> Mapping[str, Scalar]:
        """Section `fixed` of the space: settings that are equal in all trials."""
        return (self.space or {}).get("fixed") or {}

    @property
    def data_settings(self) -> DataSettings:
        """Section `data` of the space."""
        return (self.space or {}).get("data") or {}

    @property
    def evaluation(self) -> str:
        """`coupled`, `decoupled` or `probe`."""
        return (self.space or {}).get("evaluation") or "coupled"

    @property
    def concurrent_trials(self) -> int:
        """Number of trials that share the machine."""
        return (self.space or {}).get("concurrent_trials") or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume(_Event):
    """A new process continues the run, perhaps with a larger budget."""

    event: Literal["resume"]
    budget: RecordedBudget | None = None
    command: Words = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownMeasurement:
    """Configuration that an earlier run measured; `source` names that run and its trial.

    `metrics` hold for this run, `elsewhere` are of other data, another length or another machine.
    """

    config: Config
    metrics: Metrics
    source: str | None = None
    elsewhere: Metrics = field(default_factory=dict)

    @property
    def run(self) -> str:
        """Name of the earlier run; empty: not known."""
        return (self.source or "").rpartition(" ")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known(_Event):
    """Measurements of earlier runs that are of use for this one."""

    event: Literal["known"]
    measurements: list[KnownMeasurement]


@dataclass(frozen=True, slots=True, kw_only=True)
class Start(_TrialEvent):
    """A trial was started; it holds so many GPUs."""

    event: Literal["start"]
    config: Config
    kind: TrialKind = "train"
    gpus: Number = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement(_TrialEvent):
    """Metrics of a trial after an epoch (0: a probe), and whether it continues; `seconds` counts from its start.

    `samples`: after the last epoch, values of single validation samples, as `trainables.kept_samples` has them.
    """

    event: Literal["measurement"]
    epoch: Number
    metrics: Metrics
    seconds: float | None = None
    decision: Literal["continue", "stop"] | None = None
    samples: Texts = field(default_factory=lambda: NO_SAMPLES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry(_TrialEvent):
    """The workers of a trial died; it continues from its checkpoint."""

    event: Literal["retry"]
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait(_TrialEvent):
    """A trial waits for what others on the cluster use; reason None: no longer."""

    event: Literal["wait"]
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish(_TrialEvent):
    """End of a trial.

    `seconds`: held by workers; `setup_seconds`: waiting for workers. `verdict`: the bottleneck and what would help;
    None: not known. `metrics`: what is known of a trial that cannot run, such as the memory that it needs.
    """

    event: Literal["finish"]
    state: State
    reason: str | None = None
    seconds: float | None = None
    setup_seconds: float | None = None
    verdict: Verdict | None = None
    metrics: Metrics | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat(_TrialEvent):
    """A point of the front was probed again."""

    event: Literal["repeat"]
    metrics: Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Again(_TrialEvent):
    """A point of the front was trained again with another seed; `metrics` after its last epoch, or why it failed."""

    event: Literal["again"]
    seed: int
    metrics: Metrics
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn(_TrialEvent):
    """A trial and an `other` one had a turn each of the same few seconds; `rates` of both, in units/s."""

    event: Literal["turn"]
    other: TrialId
    rates: Rates


@dataclass(frozen=True, slots=True, kw_only=True)
class BesideNeighbour(_TrialEvent):
    """A trial and its configuration with another value of one parameter had a turn each of the same few seconds.

    `rates`: with and without the change, in units/s; `again`: measured again after it was found promising.
    """

    event: Literal["neighbour"]
    parameter: str
    old: Setting | None = None
    value: Setting
    rates: Rates
    again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OnTestSet(_TrialEvent):
    """A point of the front was evaluated on the test set; `reason`: why that failed."""

    event: Literal["test"]
    metrics: Metrics
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class End(_Event):
    """No further trial is started; `reason` says why."""

    event: Literal["end"]
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown(_Event):
    """Event of a later version."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    event: str


Event = (
    Opening
    | Resume
    | Known
    | Start
    | Measurement
    | Retry
    | Wait
    | Finish
    | Repeat
    | Again
    | Turn
    | BesideNeighbour
    | OnTestSet
    | End
    | Unknown
)
_KNOWN: TypeAdapter[Event] = TypeAdapter(
    Annotated[Union[*get_args(Event)[:-1]], Field(discriminator="event")],  # type: ignore[arg-type]
    config=STRICT,
)
_UNKNOWN: TypeAdapter[Event] = TypeAdapter(Unknown)


def parse(line: bytes) -> Event:
    """Return the event of a line.

    Raises:
        ValueError: the line is not an event; the message names the field and what was expected.
    """
    if b"\\u" in line or b"\x7f" in line or b"\xc2" in line:
        try:
            line = json.dumps(_printable(json.loads(line))).encode()
        except (ValueError, RecursionError):
            raise ValueError("no JSON object, or not all of one") from None
    try:
        try:
            return _KNOWN.validate_json(line)
        except ValidationError as error:
            if error.errors()[0]["type"] != "union_tag_invalid":
                raise
            return _UNKNOWN.validate_json(line)
    except ValidationError as error:
        raise ValueError(_complaint(error)) from None


def _complaint(error: ValidationError) -> str:
    """Name the first wrong field and what was expected."""
    detail = error.errors()[0]
    path = detail["loc"][error.title != "Unknown" :]  # without the tag of the union
    match detail["type"]:
        case "json_invalid":
            return "no JSON object, or not all of one"
        case "union_tag_not_found":
            return "event: missing"
        case "string_pattern_mismatch":
            message = "expected the name of a trial, as in t0001"
        case "value_error":
            message = detail["msg"].removeprefix("Value error, ")
        case _:
            message = translate_error(detail, ()).message
    return ": ".join(part for part in (dotted_key(path), message) if part)


def _printable(value: Any) -> Any:
    """Replace the characters that a terminal would obey."""
    match value:
        case str():
            return CONTROL.sub("\ufffd", value)
        case dict():
            return {_printable(key): _printable(item) for key, item in value.items()}
        case list():
            return [_printable(item) for item in value]
    return value
