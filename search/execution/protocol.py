"""Protocol of the worker pool: its messages, and the client by which a trial or the driver uses a worker group."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import ray
import ray.actor
import ray.exceptions

from search.record.source import usable_file
from trainables.contract import Config, Data, Layout, Measurement


class GroupError(Exception):
    """A worker group did not start; the message says why."""


class BusyError(Exception):
    """Others on the cluster use what a worker group needs; the message says what it waits for."""


Function = Literal["train", "probe", "test", "turns"]  # of a trainable


@dataclass(frozen=True)
class Task:
    """Function of a trainable, to be called on every rank of a group. `rivals` take turns with `config`."""

    trial_id: str
    trainable: str
    function: Function
    config: Config
    data: Data
    folder: str
    epochs: int
    digest: str = ""  # of a user's training file
    rivals: tuple[Config, ...] = ()

    @property
    def trainable_here(self) -> str:
        """The trainable, or the run's copy of a user's file that this node has not, or that has changed."""
        return usable_file(self.trainable, self.digest, Path(self.folder).parent.parent)


@dataclass(frozen=True)
class Ended:
    """End of a task, on one rank or on all: its function returned, or raised."""

    state: Literal["complete", "infeasible", "failed"]
    reason: str | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    peer_lost: bool = False  # this rank only noticed that another one is gone or silent
    retry: bool = False  # not caused by the configuration: try again from the checkpoint
    disk_full: bool = False  # no other trial can go on either
    process_lost: bool = False  # this rank's process can run no other task


@dataclass(frozen=True)
class Died:
    """Death of the group, and of its task with it. `node_lost`: a node of it is gone, or will soon be."""

    reason: str
    node_lost: bool = False


Message = Measurement | Ended | Died


@dataclass(frozen=True)
class Place:
    """Process of a rank."""

    node_id: str  # Ray's
    address: str
    pid: int


class PoolClient:
    """Runs one task at a time on a worker group of the pool: lease, submit, receive and answer reports, release."""

    def __init__(self, pool: ray.actor.ActorHandle, wait: Callable[[ray.ObjectRef], Any] = ray.get) -> None:
        """`wait` returns the result of a call that may take long."""
        self._pool, self._wait = pool, wait
        self._group: int | None = None
        self._unanswered_epoch: int | None = None  # the workers wait for the answer to its report

    @property
    def has_group(self) -> bool:
        """True while a group is leased."""
        return self._group is not None

    def submit(self, layout: Layout, task: Task) -> None:
        """Lease a group and hand it the task.

        Raises:
            InfeasibleError, GroupError, BusyError: as `WorkerPool.lease`.
        """
        try:
            self._group = self._wait(self._pool.lease.remote(layout, task.trial_id))
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        ray.get(self._call("submit", task))

    def next_message(self, timeout_seconds: float | None = None) -> Message:
        """Wait for the next message of the group.

        Raises:
            GetTimeoutError: none came in time.
        """
        call = self._call("next_message")
        message: Message = self._wait(call) if timeout_seconds is None else ray.get(call, timeout=timeout_seconds)
        if isinstance(message, Measurement):
            self._unanswered_epoch = message.epoch
        return message

    def answer(self, go_on: bool) -> None:
        """Answer the last report, unless that was done."""
        if self._unanswered_epoch is not None:
            ray.get(self._call("answer", self._unanswered_epoch, go_on))
            self._unanswered_epoch = None

    def release(self) -> None:
        """Give the group back; it stays warm."""
        if self._group is not None:
            ray.get(self._pool.release.remote(self._group))
            self._group = self._unanswered_epoch = None

    def stop(self, timeout_seconds: float) -> None:
        """Stop the task, if one is under way, and release the group. A group that does not stop in time is killed."""
        if self._group is None:
            return
        try:
            self.answer(go_on=False)
            deadline = time.monotonic() + timeout_seconds
            while isinstance(self.next_message(max(0.0, deadline - time.monotonic())), Measurement):
                self.answer(go_on=False)
            self.release()
        except ray.exceptions.GetTimeoutError:
            ray.get(self._pool.discard.remote(self._group))
            self._group = self._unanswered_epoch = None

    def _call(self, method: str, *arguments: Any) -> ray.ObjectRef:
        return self._pool.call_group.remote(self._group, method, *arguments)
