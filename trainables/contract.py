"""What a trainable is, and what it is given: the only thing that `search` and `trainables` both know."""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, cast

Config = Mapping[str, Any]
Scalar = int | float | str | bool

TRAINABLES = ("vgg19_cifar10", "replay")

# A process that keeps the others of its trial waiting for longer is taken to hang. Far longer than what one may do by
# itself meanwhile, such as writing a checkpoint; what may take longer is waited for within `waiting`.
PATIENCE_SECONDS = 120.0
PATIENCE_VARIABLE = "TRAINING_SEARCH_PATIENCE_SECONDS"


def patience_seconds() -> float:
    """How long the processes of a trial wait for each other, as the environment says or by default."""
    return float(os.environ.get(PATIENCE_VARIABLE, PATIENCE_SECONDS))


_waits: set[object] = set()  # of this process, now
_last_wait_ended = -math.inf  # by `time.monotonic`


@contextlib.contextmanager
def waiting() -> Iterator[None]:
    """For the time in which a process waits for another's work on purpose: it does nothing, but does not hang."""
    global _last_wait_ended
    _waits.add(this := object())
    try:
        yield
    finally:
        _last_wait_ended = time.monotonic()
        _waits.remove(this)


def waited_since(moment: float) -> bool:
    """Whether this process is within `waiting`, or was at some time since `moment`, by `time.monotonic`."""
    return bool(_waits) or _last_wait_ended >= moment


class InfeasibleError(Exception):
    """This configuration cannot run here; the message says why. A result, not a failure.

    `metrics`: what is known of it all the same, such as the memory that it would need.
    """

    def __init__(self, message: str, metrics: Mapping[str, float] | None = None) -> None:
        super().__init__(message)
        self.metrics: Mapping[str, float] = metrics or {}


class DataError(Exception):
    """The training data cannot be had; the message says what was looked for and what would do."""


class PeerLostError(Exception):
    """Another process of the trial is gone or silent: not this one's own fault, and so not the reason to tell."""


class HelperLostError(Exception):
    """A process that the trial had started is gone, such as a loader's: not the configuration's doing; try it again."""


@dataclass(frozen=True)
class Resources:
    """What one trial may use, over all its processes. No process can have more than one node has."""

    cpus: int
    gpus: int = 0
    nodes: int = 1  # that have equal parts of it

    @property
    def node(self) -> Resources:
        """What one of the nodes has of it."""
        return Resources(self.cpus // self.nodes, self.gpus // self.nodes)


@dataclass(frozen=True)
class Layout:
    """Processes and devices that a configuration needs. Equal layouts share warm workers."""

    processes: int = 1
    cpus_per_process: int = 1
    gpus_per_process: int = 0
    placement: Literal["pack", "spread"] = "pack"  # on as few nodes as they fit on, or on as many as there are


@dataclass(frozen=True)
class Parameter:
    """One setting of a trainable: its type, what it may be, and its value where nobody chooses one."""

    type: Literal["int", "float", "str", "bool"]
    default: Scalar | None
    help: str
    choices: tuple[Scalar, ...] = ()  # empty: anything of the type within the bounds
    low: float | None = None
    high: float | None = None
    bears_on: Literal["all", "probed", "trained"] = "all"  # metrics: all, those that a probe measures, or the others


@dataclass(frozen=True)
class Metric:
    """Something that a trainable reports."""

    unit: str
    help: str
    probed: bool = True  # a probe measures it too; False: it takes training
    limit: float | None = None  # what has more of it cannot run


@dataclass(frozen=True)
class Data:
    """Which pictures to train on. `name` is `auto` until `Trainable.locate_data` has found some."""

    name: Literal["auto", "cifar10", "folder", "generated"] = "auto"
    root: str | None = None
    download: bool = False
    train_images: int | None = None  # None: all that validation leaves
    val_images: int = 5000


@dataclass(frozen=True)
class Measurement:
    """What is known of a trial after `epoch` epochs (1, 2, ...; 0: a probe). A metric not measured is absent."""

    epoch: int
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Cost:
    """What training a configuration would take, from a few timed steps."""

    images_per_second: float
    images_per_epoch: int
    checkpoint_bytes: int


Bound = Literal["input", "transfer", "compute", "communication", "memory"]


@dataclass(frozen=True)
class Advice:
    """One setting to change: `gain` is the expected rate after it over the rate before it."""

    parameter: str
    old: Scalar | None
    new: Scalar | None
    gain: float
    why: str


@dataclass(frozen=True)
class Verdict:
    """What a trial spends most of its time on, which share of each step that is, and what would help; best first."""

    bound_by: Bound
    share: float
    why: str
    advice: tuple[Advice, ...] = ()


@dataclass(frozen=True)
class MemoryNeed:
    """The most memory that a configuration takes, in bytes by what takes it, and what there is; None: not known."""

    parts: Mapping[str, int]
    available: int | None

    @property
    def total(self) -> int:
        """Bytes."""
        return sum(self.parts.values())

    @property
    def fits(self) -> bool | None:
        """None: what there is is not known."""
        return None if self.available is None else self.total <= self.available


class Worker(Protocol):
    """One process of a trial, as the trainable sees it."""

    @property
    def rank(self) -> int:
        """0 in the process that writes checkpoints."""
        ...

    @property
    def world_size(self) -> int:
        """Processes of the trial. More than one: `torch.distributed` is initialised before `train` is called."""
        ...

    @property
    def resources(self) -> Resources:
        """What this process alone may use."""
        ...

    @property
    def data(self) -> Data:
        """As `locate_data` returned it."""
        ...

    @property
    def folder(self) -> Path:
        """The trial's own folder, shared by its processes. Checkpoints in it outlive the processes."""
        ...

    @property
    def epochs(self) -> int:
        """Epochs of the whole trial; the schedule runs over them."""
        ...

    def report(self, measurement: Measurement) -> bool:
        """Tell what an epoch gave; True: go on. Every rank calls it, and all get the same answer.

        After a restart from a checkpoint, the epoch of the checkpoint is reported again.
        """
        ...


class Trainable(Protocol):
    """A module with these names.

    Its top level imports nothing heavy: a space file is checked against it in milliseconds.
    """

    @property
    def PARAMETERS(self) -> Mapping[str, Parameter] | None:  # noqa: N802
        """By name; None: any parameter goes."""
        ...

    @property
    def METRICS(self) -> Mapping[str, Metric] | None:  # noqa: N802
        """By name; None: any metric goes."""
        ...

    def unavailable(self, parameter: str, value: Scalar, resources: Resources) -> str | None:
        """Why a trial with these resources cannot use this value; None: it can."""
        ...

    def layout(self, config: Config, resources: Resources) -> Layout:
        """The processes and devices of `config`.

        Raises:
            InfeasibleError: no layout within `resources` can run it.
        """
        ...

    def locate_data(self, data: Data) -> Data:
        """The same, with `auto` turned into what was found and `root` made absolute; downloads if that is allowed.

        Raises:
            DataError: nothing usable is there.
        """
        ...

    def describe_data(self, data: Data) -> str:
        """One line for people: the data's own name, counts, and whether it is generated. No paths."""
        ...

    def estimate(self, config: Config, data: Data) -> Cost:
        """Time a few steps of `config` in this process.

        Raises:
            InfeasibleError: `config` cannot run here.
        """
        ...

    def train(self, config: Config, worker: Worker) -> None:
        """Train from the last checkpoint in `worker.folder`, or from the start; report each epoch.

        Returns early when a report is answered with False. Leaves no process and no device memory behind.

        Raises:
            InfeasibleError: out of memory, or a setting that cannot run here.
        """
        ...

    def probe(self, config: Config, worker: Worker) -> None:
        """Measure without training to an end: rate, stage times, memory, in seconds; one report, of epoch 0.

        Raises:
            InfeasibleError: as `train`.
        """
        ...

    def explain(self, config: Config, metrics: Mapping[str, float], resources: Resources) -> Verdict | None:
        """What bounds a trial with these metrics, and what would help; None: its stages were not measured."""
        ...

    def memory(self, config: Config, data: Data, resources: Resources) -> MemoryNeed | None:
        """What `config` would take, predicted without running it; None: nothing worth predicting.

        Raises:
            InfeasibleError: no layout within `resources` can run it.
        """
        ...

    def largest_batch(self, config: Config, data: Data, resources: Resources, available: int) -> int | None:
        """The largest `batch_size` that by prediction takes at most so many bytes; 0: none does, None: as `memory`."""
        ...

    def test(self, config: Config, worker: Worker) -> Mapping[str, float]:
        """Metrics of the trial's last checkpoint on the test set, e.g. `test_accuracy`."""
        ...


def load_trainable(name: str) -> Trainable:
    """The trainable of that name.

    Raises:
        LookupError: there is none.
    """
    if name not in TRAINABLES:
        raise LookupError(f'no trainable "{name}"; there are {", ".join(TRAINABLES)}')
    return cast(Trainable, importlib.import_module(f"trainables.{name}"))
