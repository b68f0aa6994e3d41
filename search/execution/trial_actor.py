"""Ray Tune's Trainable: runs a trial on a leased worker group, passes measurements up and decisions down.

Tune calls `step` again and again. Each call returns one Outcome; the workers wait in their report until the next call
says whether to go on.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import ray
from ray import tune

from search.execution.protocol import BusyError, Died, Ended, GroupError, PoolClient, Task
from search.states import State
from trainables.contract import InfeasibleError, Measurement, Resources, load_trainable

BUSY_POLL_SECONDS = 2.0
STOP_TIMEOUT_SECONDS = 30.0  # for the workers of a trial that is stopped
MAX_RETRIES = 1
MAX_NODES_LOST = 10  # of a trial; those are no fault of its own


@dataclass(frozen=True)
class Measured:
    """End of an epoch, or of a probe (epoch 0).

    `seconds`: time on the workers; `setup_seconds`: time spent waiting for them. `samples`: as in `Measurement`.
    """

    epoch: int
    metrics: Mapping[str, float]
    seconds: float
    setup_seconds: float
    samples: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Retried:
    """Death of the workers; the trial goes on from its checkpoint."""

    reason: str


@dataclass(frozen=True)
class Waiting:
    """Wait for what others on the cluster use; reason None: it is over."""

    reason: str | None


@dataclass(frozen=True)
class Finished:
    """End of the trial. `metrics`: what is known about a trial that cannot run."""

    state: State
    reason: str | None
    seconds: float | None  # as in `Measured`; None: not known
    setup_seconds: float | None
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class DiskFull:
    """The workers could not write; the trial can go on when there is space again."""

    reason: str


Outcome = Measured | Retried | Waiting | Finished | DiskFull


class TrialActor(tune.Trainable):  # type: ignore[misc]  # Ray has no types
    """Actor of one trial after another: Tune reuses the actor, the pool reuses the workers."""

    def setup(self, config: dict[str, Any]) -> None:
        """Begin the first trial of this actor."""
        self._client = PoolClient(ray.get_actor(config["pool"]))
        self._begin(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """End the previous trial, begin the next one."""
        self.cleanup()
        self._begin(new_config)
        return True

    def step(self) -> dict[str, Any]:
        """Return the next outcome of the trial, as an object: Tune would flatten a dictionary."""
        try:
            outcome = self._next_outcome()
        except InfeasibleError as error:
            outcome = self._finish("infeasible", str(error), error.metrics)
        except GroupError as error:
            outcome = self._retry(str(error))
        return {"outcome": outcome, "done": isinstance(outcome, Finished)}

    def cleanup(self) -> None:
        """End the trial; the workers stay warm, unless they do not stop."""
        self._client.stop(STOP_TIMEOUT_SECONDS)

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        """Save nothing: the workers write their own checkpoints, after each epoch."""
        return {}

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Load nothing: the workers read their own checkpoints."""

    def _begin(self, config: dict[str, Any]) -> None:
        self._task: Task = config["task"]
        self._resources: Resources = config["resources"]
        self._last_epoch: int = config["last_epoch"]  # measured before a resume; -1: none
        self._retries, self._max_retries, self._nodes_lost = 0, config["retries"], 0
        self._seconds_before: float = config["seconds_before"]
        self._setup_seconds = 0.0
        self._submitted_at = 0.0
        self._waits = False

    def _next_outcome(self) -> Outcome:
        if not self._client.has_group and (waiting := self._submit()) is not None:
            return waiting
        final_epoch = 0 if self._task.function == "probe" else self._task.epochs
        self._client.answer(go_on=True)
        while True:
            match self._client.next_message():
                case Measurement(epoch=epoch) if epoch <= self._last_epoch:
                    self._client.answer(go_on=True)  # repeats the checkpoint's epoch, which the journal has
                case Measurement(epoch=epoch, metrics=metrics, samples=samples):
                    self._last_epoch = epoch
                    return Measured(epoch, dict(metrics), self._seconds(), self._setup_seconds, dict(samples))
                case Ended(disk_full=True, reason=reason):
                    self._client.release()
                    return DiskFull(reason or "the disk is full")
                case Ended(retry=True, reason=reason):
                    return self._retry(reason or "one of its processes was lost")
                case Ended(state="complete") if self._last_epoch < final_epoch:
                    reported = f"more than epoch {self._last_epoch} of {final_epoch}"
                    reported = "anything" if self._last_epoch < 0 else reported
                    return self._finish("failed", f"it returned without having reported {reported}")
                case Ended(state=state, reason=reason, metrics=metrics):
                    return self._finish(state, reason, metrics)
                case Died(reason=reason, node_lost=node_lost):
                    return self._retry(reason, node_lost)

    def _submit(self) -> Waiting | None:
        """Hand the task to workers; return that the trial waits for them, or that it did so until now."""
        asked_at = time.monotonic()
        layout = load_trainable(self._task.trainable_here).layout(self._task.config, self._resources)
        waited, self._waits = self._waits, False
        try:
            self._client.submit(layout, self._task)
        except BusyError as busy:
            self._waits = True
            time.sleep(BUSY_POLL_SECONDS if waited else 0)
            return Waiting(f"{busy}")
        finally:
            self._submitted_at = time.monotonic()
            self._setup_seconds += self._submitted_at - asked_at
        return Waiting(None) if waited else None

    def _finish(self, state: State, reason: str | None, metrics: Mapping[str, float] | None = None) -> Finished:
        seconds = self._seconds()
        self._client.release()
        return Finished(state, reason, seconds, self._setup_seconds, metrics or {})

    def _retry(self, reason: str, node_lost: bool = False) -> Outcome:
        if node_lost and self._nodes_lost < MAX_NODES_LOST:
            self._nodes_lost += 1
        elif self._retries == self._max_retries:
            return self._finish("failed", f"{reason} (after {self._retries} retry)" if self._retries else reason)
        else:
            self._retries += 1
        self._seconds_before = self._seconds()
        self._client.release()
        return Retried(reason)

    def _seconds(self) -> float:
        """Time on the workers so far, without the time spent waiting for them."""
        return self._seconds_before + (time.monotonic() - self._submitted_at if self._client.has_group else 0.0)
