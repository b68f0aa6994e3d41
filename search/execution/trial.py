"""Ray Tune's Trainable: leases warm workers for a trial, relays measurements up and decisions down.

Tune asks for one `step` after another. Each returns one Outcome; the workers wait in their report until the next call
says whether to go on.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import ray
from ray import tune

from search.execution.pool import GroupError
from search.execution.serve import Died, Ended, Task
from trainables.contract import Data, InfeasibleError, Layout, Measurement, Resources, load_trainable

STOP_TIMEOUT_SECONDS = 30.0  # how long a stopped trial's workers may take to put their tools down
MAX_RETRIES = 1


@dataclass(frozen=True)
class Measured:
    """An epoch is over, or a probe (epoch 0). `seconds`: in the workers' hands; `setup_seconds`: the wait for them."""

    epoch: int
    metrics: Mapping[str, float]
    seconds: float
    setup_seconds: float


@dataclass(frozen=True)
class Retried:
    """The workers died; the trial goes on from its checkpoint."""

    reason: str


@dataclass(frozen=True)
class Finished:
    """The trial is over. `metrics`: what is known of one that cannot run."""

    state: str
    reason: str | None
    seconds: float
    setup_seconds: float
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class DiskFull:
    """The workers could not write; the trial is to go on when there is space again."""

    reason: str


Outcome = Measured | Retried | Finished | DiskFull


class Trial(tune.Trainable):  # type: ignore[misc]  # Ray has no types
    """One trial after another: Tune reuses the actor, the pool reuses the workers."""

    def setup(self, config: dict[str, Any]) -> None:
        """Begin the first trial of this actor."""
        self._begin(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """End the trial before, begin the next."""
        self._leave()
        self._begin(new_config)
        return True

    def step(self) -> dict[str, Any]:
        """The next thing that became of the trial. An object, not a dictionary: those Tune takes apart."""
        try:
            outcome = self._next_outcome()
        except InfeasibleError as error:
            outcome = self._finished("infeasible", str(error), error.metrics)
        except GroupError as error:
            outcome = self._died(str(error))
        return {"outcome": outcome, "done": isinstance(outcome, Finished)}

    def cleanup(self) -> None:
        """End the trial, keep the workers."""
        self._leave()

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        """Nothing: the workers keep their own, epoch by epoch."""
        return {}

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Nothing: the workers keep their own, epoch by epoch."""

    def _begin(self, config: dict[str, Any]) -> None:
        self._pool = ray.get_actor(config["pool"])
        self._task = Task(
            trial_id=config["trial_id"],
            trainable=config["trainable"],
            function=config["kind"],
            config=config["config"],
            data=Data(**config["data"]),
            folder=config["folder"],
            epochs=config["epochs"],
        )
        self._resources = Resources(**config["resources"])
        self._last_epoch: int = config["last_epoch"]  # known already, from before a resume; -1: none
        self._group: int | None = None
        self._waiting_epoch: int | None = None  # the epoch whose report the workers wait to be answered
        self._retries, self._most_retries = 0, config["retries"]
        self._seconds_before: float = config["seconds_before"]
        self._setup_seconds = 0.0
        self._handed_over_at = 0.0

    def _next_outcome(self) -> Outcome:
        if self._group is None:
            self._lease()
        if self._waiting_epoch is not None:
            self._answer(go_on=True)
        while True:
            message = ray.get(self._pool.next_message.remote(self._group))
            match message:
                case Measurement(epoch=epoch) if epoch <= self._last_epoch:
                    # from the checkpoint that the trial goes on from; the journal has it
                    self._waiting_epoch = epoch
                    self._answer(go_on=True)
                case Measurement(epoch=epoch, metrics=metrics):
                    self._last_epoch = self._waiting_epoch = epoch
                    return Measured(epoch, dict(metrics), self._seconds(), self._setup_seconds)
                case Ended(disk_full=True, reason=reason):
                    self._release()
                    return DiskFull(reason or "the disk is full")
                case Ended(retry=True, reason=reason):
                    return self._died(reason or "a process of it was lost")
                case Ended(state="complete") if self._last_epoch < self._due_epoch:
                    return self._finished("failed", self._said_too_little())
                case Ended(state=state, reason=reason, metrics=metrics):
                    return self._finished(state, reason, metrics)
                case Died(reason=reason):
                    return self._died(reason)

    @property
    def _due_epoch(self) -> int:
        """The last that a trial reports that is neither stopped nor fails; 0: a probe's only one."""
        return 0 if self._task.function == "probe" else self._task.epochs

    def _said_too_little(self) -> str:
        reported = "anything" if self._last_epoch < 0 else f"more than epoch {self._last_epoch} of {self._due_epoch}"
        return f"it returned without having reported {reported}"

    def _lease(self) -> None:
        asked_at = time.monotonic()
        layout: Layout = load_trainable(self._task.trainable).layout(self._task.config, self._resources)
        try:
            self._group = ray.get(self._pool.lease.remote(layout, self._task.trial_id))
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        ray.get(self._pool.submit.remote(self._group, self._task))
        self._handed_over_at = time.monotonic()
        self._setup_seconds += self._handed_over_at - asked_at

    def _answer(self, go_on: bool) -> None:
        ray.get(self._pool.answer.remote(self._group, self._waiting_epoch, go_on))
        self._waiting_epoch = None

    def _finished(self, state: str, reason: str | None, metrics: Mapping[str, float] | None = None) -> Finished:
        seconds = self._seconds()
        self._release()
        return Finished(state, reason, seconds, self._setup_seconds, metrics or {})

    def _died(self, reason: str) -> Outcome:
        if self._retries == self._most_retries:
            return self._finished("failed", f"{reason} (after {self._retries} retry)" if self._retries else reason)
        self._retries += 1
        self._seconds_before = self._seconds()
        self._release()
        self._waiting_epoch = None
        return Retried(reason)

    def _release(self) -> None:
        if self._group is not None:
            ray.get(self._pool.release.remote(self._group))
            self._group = None

    def _leave(self) -> None:
        """Make sure that nothing of the trial runs on; a group that does not obey is ended."""
        if self._group is None:
            return
        try:
            if self._waiting_epoch is not None:
                self._answer(go_on=False)
            deadline = time.monotonic() + STOP_TIMEOUT_SECONDS
            while isinstance(message := self._message_before(deadline), Measurement):
                self._waiting_epoch = message.epoch
                self._answer(go_on=False)
            self._release()
        except ray.exceptions.GetTimeoutError:
            ray.get(self._pool.discard.remote(self._group))
            self._group = None

    def _message_before(self, deadline: float) -> Measurement | Ended | Died:
        timeout = max(0.0, deadline - time.monotonic())
        message: Measurement | Ended | Died = ray.get(self._pool.next_message.remote(self._group), timeout=timeout)
        return message

    def _seconds(self) -> float:
        """Time in the workers' hands, without the wait for them."""
        in_hand = 0.0 if self._group is None else time.monotonic() - self._handed_over_at
        return self._seconds_before + in_hand
