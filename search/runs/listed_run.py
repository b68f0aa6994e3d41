"""One run of the list: what its journal and its folder tell."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from search.record.disk import describe_os_error
from search.record.journal import FILE_NAME, read_journal
from search.record.run_end import run_status
from search.record.run_state import RunState
from search.space.machine import Machine
from search.text.numbers import plural

SECONDS_PER_HOUR = 3600.0
WORDS = ("name", "state", "owner", "space", "trainable", "machine")  # what a list can be filtered by


@dataclass(frozen=True)
class Best:
    """Best value of an objective on the front, with the trial that has it."""

    metric: str
    goal: Literal["maximize", "minimize"]
    value: float
    text: str  # with its interval
    trial_id: str


@dataclass(frozen=True)
class ListedRun:
    """A run. `state`: running, ended, interrupted (neither), or unreadable, for which only the first fields are known.

    `reason`: why it ended, or why it cannot be read.
    """

    folder: Path
    state: str
    owner: str
    journal_bytes: int
    reason: str = ""
    began: float = 0.0  # seconds since 1970
    seconds: float = 0.0  # of the run, without the gaps between its processes
    space: str = ""  # name of the space file
    trainable: str = ""
    machine: str = ""
    num_gpus: int = 0
    gpu_hours: float = 0.0  # of its trials, each times the GPUs that it held
    trials: Mapping[str, int] = field(default_factory=dict)  # by state
    front: tuple[str, ...] = ()  # the trials on it
    best: tuple[Best, ...] = ()

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.folder.name

    @property
    def hours(self) -> float:
        """Hours that the run took so far."""
        return self.seconds / SECONDS_PER_HOUR

    @property
    def began_at(self) -> str:
        """Date and time in UTC; empty: not known."""
        return f"{datetime.fromtimestamp(self.began, UTC):%Y-%m-%d %H:%M}" if self.began else ""

    def to_mapping(self) -> dict[str, Any]:
        """Return plain data, for JSON."""
        best = {each.metric: {"value": each.value, "trial": each.trial_id} for each in self.best}
        return {
            **{name: getattr(self, name) for name in WORDS},
            "folder": str(self.folder),
            "reason": self.reason or None,
            "began": datetime.fromtimestamp(self.began, UTC).isoformat() if self.began else None,
            "hours": self.hours,
            "gpu_hours": self.gpu_hours,
            "trials": dict(self.trials),
            "front": list(self.front),
            "best": best,
        }


def list_runs(folder: Path, earlier: Sequence[ListedRun] = ()) -> list[ListedRun]:
    """Return the runs in a folder, the newest first and then those that cannot be read; other folders are left out.

    A journal that has not grown since the `earlier` list is not read again, unless the run was going on.

    Raises:
        OSError: the folder cannot be read.
    """
    known = {run.folder: run for run in earlier if run.state != "running"}
    found = []
    for path in sorted(folder.iterdir()):
        try:
            if not (path / FILE_NAME).is_file():
                continue
            run = known.get(path)
            if run is None or run.journal_bytes != (path / FILE_NAME).stat().st_size:
                run = listed_run(path)
        except OSError as error:
            run = ListedRun(path, "unreadable", "", 0, reason=describe_os_error(error))
        found.append(run)
    return sorted(found, key=lambda run: run.began, reverse=True)


def listed_run(folder: Path) -> ListedRun:
    """Return what the folder of a run tells."""
    journal = folder / FILE_NAME
    owner, size = _owner(folder), journal.stat().st_size
    try:
        state = RunState(read_journal(journal))
    except (OSError, ValueError) as error:
        return ListedRun(folder, "unreadable", owner, size, reason=str(error).removeprefix(f"{journal}: "))
    info, status = state.info, run_status(folder, state.end)
    return ListedRun(
        folder=folder,
        state=status,
        owner=owner,
        journal_bytes=size,
        reason=state.end or "",
        began=info.time,
        seconds=state.clock.active_seconds(time.time() if status == "running" else None),
        space=Path(info.space_file).stem if info.space_file else "",
        trainable=info.trainable,
        machine=_machine_type(info.machine),
        num_gpus=len(info.machine.gpus) * info.machine.num_nodes,
        gpu_hours=state.gpu_seconds() / SECONDS_PER_HOUR,
        trials=state.shown_counts(is_running=status == "running"),
        front=tuple(trial.trial_id for trial in state.front()),
        best=tuple(_best(state)),
    )


def _best(state: RunState) -> list[Best]:
    """Return the best of each objective on the front."""
    front = state.front()
    if not front:
        return []
    found = []
    for objective, column in zip(state.objectives, state.losses(front).T, strict=True):
        trial = front[int(column.argmin())]
        text = state.format_metric(trial, objective.metric)
        value = trial.metrics[objective.metric]
        found.append(Best(state.label(objective.metric), objective.goal, value, text, trial.trial_id))
    return found


def _machine_type(machine: Machine) -> str:
    """Return the processor or the GPUs of one node, and the number of nodes, as in `8 x NVIDIA H100, 2 nodes`."""
    names = [gpu.name for gpu in machine.gpus]
    gpus = " and ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
    node = gpus or f"{machine.cpu_name}, {plural(machine.cores, 'core')}"
    return f"{node}, {machine.num_nodes} nodes" if machine.num_nodes > 1 else node


def _owner(folder: Path) -> str:
    """Return the user to whom the folder belongs: the name, or the number of one whom this machine does not know."""
    try:
        return folder.owner()
    except KeyError:
        return str(folder.stat().st_uid)
