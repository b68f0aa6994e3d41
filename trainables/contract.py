"""Interface between `search` and `trainables`: what a trainable provides and what it is given."""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, cast, get_args

Config = Mapping[str, Any]
Scalar = int | float | str | bool
Role = Literal["rate", "quality", "loss"]  # of a metric: quality is better if larger, loss if smaller
Affects = Literal["all", "probed", "trained"]  # metrics that change: all, those of a probe, or the others

TRAINING_SECONDS = "training_seconds"  # the metric that the time of a whole training is
EPOCHS = "epochs"  # the parameter that a training's length is, where it has one
ANSWERS = "answers"  # a FIFO in the folder of a training that takes turns, see `trainables.train`
TRAINABLES = ("vgg19_cifar10", "image_folder", "replay")

# Metrics by the names of earlier versions, which journals, tables and space files may still have.
RENAMED_METRICS = {"disturbed": "contended", "disturbed_windows": "contended_windows"}

# A process that keeps the others of its trial waiting for longer is treated as hanging. Writing a checkpoint takes far
# less; work that may take longer is waited for within `waiting`.
TIMEOUT_SECONDS = 120.0
TIMEOUT_VARIABLE = "TRAINING_SEARCH_TIMEOUT_SECONDS"
OLD_TIMEOUT_VARIABLE = "TRAINING_SEARCH_PATIENCE_SECONDS"  # read where the new one is not set


def timeout_seconds() -> float:
    """Return the time that the processes of a trial wait for each other: from the environment, or the default."""
    return float(os.environ.get(TIMEOUT_VARIABLE) or os.environ.get(OLD_TIMEOUT_VARIABLE) or TIMEOUT_SECONDS)


def group_timeout_seconds(on_gpus: bool, timeout: float) -> float:
    """Return the timeout of a process group whose ranks wait `timeout` for each other.

    NCCL's watchdog ends the processes that wait, not the one that hangs. Twice the time leaves it to others to find
    that one first.
    """
    return 2 * timeout if on_gpus else timeout


_waits: set[object] = set()  # of this process, now
_last_wait_ended = -math.inf  # by `time.monotonic`


@contextlib.contextmanager
def waiting() -> Iterator[None]:
    """Mark the time in which a process waits for another's work on purpose, so that it is not taken to hang."""
    global _last_wait_ended
    _waits.add(this := object())
    try:
        yield
    finally:
        _last_wait_ended = time.monotonic()
        _waits.remove(this)


def waited_since(moment: float) -> bool:
    """Return whether this process is within `waiting`, or was since `moment` (`time.monotonic`)."""
    return bool(_waits) or _last_wait_ended >= moment


class InfeasibleError(Exception):
    """Raised for a configuration that cannot run here, with the reason. A result, not a failure.

    `metrics` holds what is known nevertheless, such as the memory that it would need.
    """

    def __init__(self, message: str, metrics: Mapping[str, float] | None = None) -> None:
        super().__init__(message)
        self.metrics: Mapping[str, float] = metrics or {}


class AlternativeError(InfeasibleError):
    """Raised where one of several configurations that are measured in turns cannot run, with its place among them."""

    def __init__(self, place: int, reason: str) -> None:
        super().__init__(reason)
        self.place = place


class DataError(Exception):
    """Raised for missing training data; the message says what was looked for and what to do."""


class OwnCodeError(Exception):
    """Raised for an error in a user's code; the message is one line with the reason, and its file and line."""


class PeerLostError(Exception):
    """Raised when another process of the trial is gone or silent; that one has the reason to report."""


class DeviceLostError(Exception):
    """Raised when the GPU can no longer be used by this process, after an error such as an illegal memory access."""


class HelperLostError(Exception):
    """Raised when a helper process, such as a loader, is gone: the trial is tried again."""


@dataclass(frozen=True)
class Source:
    """A user's training file as it was when it was first read, and the files beside it that it imports."""

    path: Path
    digest: str
    files: Mapping[str, bytes]  # content by path from the file's folder

    def packages(self) -> dict[str, str]:
        """Return the versions of the packages that the files import; takes about a second."""
        versions = importlib.import_module("trainables.source_files").imported_packages(self.path)
        return cast("dict[str, str]", versions)


@dataclass(frozen=True)
class Resources:
    """Resources of one trial over all its processes. No process can have more than one node has."""

    cpus: int
    gpus: int = 0
    nodes: int = 1  # with equal shares

    @property
    def node(self) -> Resources:
        """Resources on one of the nodes."""
        return Resources(self.cpus // self.nodes, self.gpus // self.nodes)

    def on(self, nodes: int) -> Resources:
        """Return the resources of so many such nodes."""
        return Resources(nodes * self.node.cpus, nodes * self.node.gpus, nodes)


@dataclass(frozen=True)
class Layout:
    """Processes and devices that a configuration needs. Equal layouts share warm workers."""

    processes: int = 1
    cpus_per_process: int = 1
    gpus_per_process: int = 0
    placement: Literal["pack", "spread"] = "pack"  # on as few nodes as possible, or on as many


@dataclass(frozen=True)
class Parameter:
    """One setting of a trainable, with its type, allowed values and default."""

    type: Literal["int", "float", "str", "bool"]
    default: Scalar | None
    help: str
    choices: Collection[Scalar] = ()  # empty: any value of the type from `low` to `high`
    low: float | None = None
    high: float | None = None
    affects: Affects = "all"


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """A value of the setting `strategy`: a way for processes and devices to share the work of a trial."""

    help: str
    one_process: bool = False
    settings: tuple[str, ...] = ()  # parameters that only this strategy and similar ones read


@dataclass(frozen=True)
class Metric:
    """A metric that a trainable reports."""

    unit: str
    help: str
    probed: bool = True  # measured by probes too; False: takes training
    limit: float | None = None  # a configuration above it cannot run
    role: Role | None = None
    role_is_guess: bool = False  # by its name

    @property
    def goal(self) -> Literal["maximize", "minimize"]:
        """Direction in which the metric improves, by its role."""
        return "minimize" if self.role == "loss" else "maximize"


@dataclass(frozen=True)
class Data:
    """Samples to train on. `name` is `auto` until `Trainable.locate_data` has found some."""

    name: Literal["auto", "cifar10", "folder", "generated"] = "auto"
    root: str | None = None
    download: bool = False
    train_images: int | None = None  # None: all except those for validation
    val_images: int = 5000


def undated(description: str) -> str:
    """Return a description of data without the date of their files, which a copy of them changes."""
    return description.partition(", newest ")[0]


@dataclass(frozen=True)
class Measurement:
    """Metrics of a trial after `epoch` epochs (1, 2, ...; 0: a probe). A metric not measured is absent.

    `samples`: after the last epoch, the values of single validation samples by metric, as `kept_samples` writes them.
    """

    epoch: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    samples: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Cost:
    """Cost of training a configuration, estimated from a few timed steps."""

    samples_per_second: float
    samples_per_epoch: int
    checkpoint_bytes: int | None  # None: not known
    units_per_sample: float = 1  # of the training's rate, such as the tokens of a text

    @property
    def units_per_second(self) -> float:
        """Rate in the units of the training."""
        return self.samples_per_second * self.units_per_sample


Bound = Literal["input", "transfer", "host", "compute", "communication", "memory"]
Stage = Literal["load", "transfer", "forward", "backward", "communicate", "update"]  # of a step
STAGES: tuple[Stage, ...] = get_args(Stage)


@dataclass(frozen=True)
class Verdict:
    """The bottleneck of a trial, and its share of each step."""

    bound_by: Bound
    share: float
    why: str


@dataclass(frozen=True)
class MemoryNeed:
    """Peak memory of a configuration, in bytes by part, and the memory available."""

    parts: Mapping[str, int]
    available: int

    @property
    def total(self) -> int:
        """Sum of the parts, in bytes."""
        return sum(self.parts.values())

    @property
    def fits(self) -> bool:
        """Whether `total` is at most `available`."""
        return self.total <= self.available


class Worker(Protocol):
    """One process of a trial, as the trainable sees it.

    An optional `on_step(epoch, step, steps)` is called after each step of an epoch, where `steps` of it are known.
    Where an optional `all_views` is true, a test also averages outputs over versions of its inputs, if it knows any.
    With an optional `evaluate_every` of n, validation samples are measured after every n-th epoch and the last one.
    """

    rank: int  # 0 in the process that writes checkpoints
    world_size: int  # processes of the trial; if several, `torch.distributed` is initialised before `train` is called
    resources: Resources  # of this process alone
    data: Data  # as `locate_data` returned it
    folder: Path  # of the trial, shared by its processes; checkpoints in it outlive the processes
    epochs: int  # of the whole trial; the schedule runs over them

    def report(self, measurement: Measurement) -> bool:
        """Report an epoch; True: go on. All ranks call it, and all get the same answer.

        After a restart from a checkpoint, its epoch is reported again, and later ones that had been reported, too.
        """


class Trainable(Protocol):
    """A module with these names, or the object `trainable` in a module.

    Its top level imports nothing heavy: a space file is checked against it in milliseconds. Optional names are
    `USUAL_EPOCHS`, the epochs of a full training, `source`, the `Source` of a user's file,
    `superseded(parameter, value, values, resources)`, why a space need not search a value beside the other `values`,
    `turns(configs, worker)`, which reports `rate_0`, `rate_1`, ... of configurations with one layout round by round
    until a report returns False, and `meanings_of_auto(resources)`, what the value `auto` of parameters stands for
    where it is known beforehand.
    """

    PARAMETERS: Mapping[str, Parameter] | None  # None: any parameter is accepted
    METRICS: Mapping[str, Metric] | None  # None: any metric is accepted
    STRATEGIES: Mapping[str, Strategy]  # so that reports recognise trials of the same work

    def unavailable(self, parameter: str, value: Scalar, resources: Resources) -> str | None:
        """Return why a trial with these resources cannot use this value; None: it can."""

    def layout(self, config: Config, resources: Resources) -> Layout:
        """Return the processes and devices of `config`.

        Raises:
            InfeasibleError: no layout within `resources` can run it.
        """

    def locate_data(self, data: Data) -> Data:
        """Return the data with `auto` resolved and `root` absolute; download if allowed.

        Raises:
            DataError: there is nothing usable.
        """

    def describe_data(self, data: Data) -> str:
        """Return one line for people: the data's name, counts, and whether it is generated. No paths."""

    def estimate(self, config: Config, data: Data) -> Cost:
        """Time a few steps of `config` in this process.

        Raises:
            InfeasibleError: `config` cannot run here.
        """

    def train(self, config: Config, worker: Worker) -> None:
        """Train from the last checkpoint in `worker.folder`, or from the start; report each epoch.

        Not every epoch has a checkpoint; the last one has, before it is reported. Returns early when a report returns
        False. Leaves no process and no device memory behind.

        Raises:
            InfeasibleError: out of memory, or a setting that cannot run here.
        """

    def probe(self, config: Config, worker: Worker) -> None:
        """Measure rate, stage times and memory for some seconds; report once, as epoch 0.

        Raises:
            InfeasibleError: see `train`.
        """

    def explain(self, config: Config, metrics: Mapping[str, float], resources: Resources) -> Verdict | None:
        """Return the bottleneck of a trial with these metrics; None: its stages were not measured."""

    def memory(self, config: Config, data: Data, resources: Resources) -> MemoryNeed | None:
        """Return the predicted memory of `config`; None: nothing worth predicting.

        Raises:
            InfeasibleError: no layout within `resources` can run it.
        """

    def largest_batch(self, config: Config, data: Data, resources: Resources, available: int) -> int | None:
        """Return the largest `batch_size`, of the training samples at most, that takes `available` bytes at most.

        It is predicted; 0: none, None: see `memory`.
        """

    def test(self, config: Config, worker: Worker) -> Mapping[str, float]:
        """Return the metrics of the trial's last checkpoint on the test set, e.g. `test_accuracy`."""


def source_of(name: str) -> Source | None:
    """Return the file of a user's trainable; None: it is no file.

    Raises:
        LookupError: see `load_trainable`.
    """
    source: Source | None = getattr(load_trainable(name), "source", None)
    return source


def find_trainable(name: str) -> Trainable | None:
    """Return a trainable to read a run of it; None: it is of another version.

    For a user's file, return only what every training has: the file may be gone, and reading a run depends on no file.
    """
    if name.endswith(".py"):
        return cast(Trainable, importlib.import_module("trainables.own_trainable").ANY)
    try:
        return load_trainable(name)
    except (LookupError, ImportError):
        return None


def load_trainable(name: str) -> Trainable:
    """Return a trainable: one of TRAINABLES, any module by its path, or a file such as `flowers.py`, which is not run.

    Raises:
        LookupError: there is no such module, or the file's declaration has a mistake.
    """
    if name.endswith(".py"):
        return cast(Trainable, importlib.import_module("trainables.own_trainable").own_trainable(Path(name).absolute()))
    path = f"trainables.{name}" if name in TRAINABLES else name
    try:
        if path != name or ("." in name and not name.startswith(".")):
            module = importlib.import_module(path)
            return cast(Trainable, getattr(module, "trainable", module))
    except ModuleNotFoundError as error:
        if not f"{path}.".startswith(f"{error.name}."):
            raise  # something that the module imports
    raise LookupError(f'no trainable "{name}"; there are {", ".join(TRAINABLES)}, and files that end in .py')
