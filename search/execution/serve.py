"""What a process of a worker group does: takes one task after another, calls the trainable, leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import psutil
import ray
import ray.actor
import ray.util

from search.execution.idleness import Idleness
from search.execution.shortage import kernel_kills
from search.record.disk import is_full, told
from trainables.contract import (
    Data,
    HelperLostError,
    InfeasibleError,
    Measurement,
    PeerLostError,
    Resources,
    load_trainable,
    waiting,
)

State = Literal["complete", "infeasible", "failed"]


@dataclass(frozen=True)
class Task:
    """One function of a trainable, to be called on every rank of a group."""

    trial_id: str
    trainable: str
    function: Literal["train", "probe", "test"]
    config: dict[str, Any]
    data: Data
    folder: str
    epochs: int


@dataclass(frozen=True)
class Ended:
    """A task is over: its function returned, or raised, on every rank."""

    state: State
    reason: str | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    peer_lost: bool = False  # this rank only noticed that another is gone or silent
    retry: bool = False  # it says nothing of the configuration: to be tried again from the checkpoint
    disk_full: bool = False  # nor will any other trial get on


@dataclass(frozen=True)
class Died:
    """The group is gone, and its task with it."""

    reason: str


Message = Measurement | Ended | Died


@dataclass(frozen=True)
class Place:
    """Where a rank runs."""

    node_id: str  # Ray's
    address: str
    pid: int


def here() -> Place:
    """Of this process."""
    context = ray.get_runtime_context()
    return Place(context.get_node_id(), ray.util.get_node_ip_address(), os.getpid())


@dataclass(frozen=True)
class _RayWorker:
    """The trainable's `Worker`, with the pool at the other end."""

    pool: ray.actor.ActorHandle
    group: int
    number: int
    task: Task
    rank: int
    world_size: int
    resources: Resources

    @property
    def data(self) -> Data:
        return self.task.data

    @property
    def folder(self) -> Path:
        return Path(self.task.folder)

    @property
    def epochs(self) -> int:
        return self.task.epochs

    def report(self, measurement: Measurement) -> bool:
        with waiting():
            answer: bool = ray.get(self.pool.report.remote(self.group, self.number, self.rank, measurement))
        return answer


def serve(settings: Mapping[str, Any]) -> None:
    """The training function of a group: one task after another, until there is none."""
    import ray.train

    pool, group, layout = settings["pool"], settings["group"], settings["layout"]
    context = ray.train.get_context()
    rank, world_size = context.get_world_rank(), context.get_world_size()
    resources = Resources(cpus=layout.cpus_per_process, gpus=layout.gpus_per_process)
    itself = ray.get_runtime_context().current_actor
    number, place = 0, here()
    while True:
        number, task = ray.get(pool.next_task.remote(group, rank, itself, place, number))
        if task is None:
            return
        idleness = Idleness(settings["patience"], partial(_hangs, pool, group, number, rank))
        worker = _RayWorker(pool, group, number, task, rank, world_size, resources)
        with idleness.watched():
            ended = _call(task, worker)
        leave_nothing_behind()
        ray.get(pool.ended.remote(group, number, rank, ended))


def _hangs(pool: ray.actor.ActorHandle, group: int, number: int, rank: int) -> None:
    ray.get(pool.hangs.remote(group, number, rank))


def _call(task: Task, worker: _RayWorker) -> Ended:
    kills = kernel_kills()
    try:
        function = getattr(load_trainable(task.trainable), task.function)
        return Ended("complete", metrics=function(task.config, worker) or {})
    except InfeasibleError as error:
        return Ended("infeasible", str(error), error.metrics)
    except PeerLostError as error:
        return Ended("failed", str(error), peer_lost=True)
    except HelperLostError as error:
        if kernel_kills() > kills:
            return Ended("infeasible", f"out of host memory: {error}")
        return Ended("failed", str(error), retry=True)
    except MemoryError as error:
        return Ended("infeasible", f"out of host memory{f': {error}' if str(error) else ''}")
    except Exception as error:
        if isinstance(error, OSError) and is_full(error):
            return Ended("failed", told(error), disk_full=True)
        with contextlib.suppress(OSError):
            (worker.folder / f"error-rank{worker.rank}.txt").write_text(traceback.format_exc())
        where = traceback.extract_tb(error.__traceback__)[-1]
        return Ended("failed", f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})")


def leave_nothing_behind() -> None:
    """End the processes that a task started and did not end itself, so that they cannot disturb the next one."""
    children = psutil.Process().children(recursive=True)
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    psutil.wait_procs(children, timeout=5)
