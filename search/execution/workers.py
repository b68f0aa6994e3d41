"""Warm workers as the driver of a run sees them: a pool that is there while the run is, and calls at it."""

from __future__ import annotations

import contextlib
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import ray
import ray.actor
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from search.execution.pool import WorkerPool
from search.execution.serve import Died, Ended, Task
from trainables.contract import Layout, Measurement, Resources, patience_seconds


@dataclass(frozen=True)
class Pool:
    """The actor that keeps warm workers, and how trials find it."""

    name: str
    actor: ray.actor.ActorHandle
    storage: str  # a folder for what Ray itself writes; none of it is needed afterwards


@contextlib.contextmanager
def worker_pool(capacity: Resources, reserve_cpus: bool) -> Iterator[Pool]:
    """A pool of workers; at the end its groups are gone.

    `reserve_cpus`: tell Ray which CPUs the groups use, as is due on a cluster that others share. On a cluster of our
    own the pool alone says who may work, and groups that rest stay warm beside each other.
    """
    name = f"worker-pool-{uuid.uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory(prefix="training-search-", ignore_cleanup_errors=True) as storage:
        beside_driver = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        remote = ray.remote(num_cpus=0, name=name, max_concurrency=1000, scheduling_strategy=beside_driver)(WorkerPool)
        actor = remote.remote(capacity, storage, reserve_cpus, patience_seconds())
        try:
            yield Pool(name, actor, storage)
        finally:
            ray.kill(actor)  # its groups are its own and end with it


def call(pool: ray.actor.ActorHandle, layout: Layout, task: Task, check: Callable[[], None]) -> Ended | Died:
    """Run a task, and wait for its end; `check` is called all the while. The metrics are those that it reported last.

    Raises:
        InfeasibleError, GroupError: as `WorkerPool.lease`.
    """
    group = _wait_for(pool.lease.remote(layout, task.trial_id), check)
    ray.get(pool.submit.remote(group, task))
    try:
        reported: Mapping[str, float] = {}
        while isinstance(message := _wait_for(pool.next_message.remote(group), check), Measurement):
            reported = message.metrics
            ray.get(pool.answer.remote(group, message.epoch, True))
        outcome: Ended | Died = message
        return replace(outcome, metrics=reported) if reported and isinstance(outcome, Ended) else outcome
    finally:
        ray.get(pool.release.remote(group))


def warm(pool: Pool, layout: Layout) -> None:
    """Let a group of this layout start, which takes seconds; whoever leases it waits for the rest of them only."""
    pool.actor.warm.remote(layout)


def end_lease(pool_name: str, trial_id: str) -> None:
    """End whatever group is still leased to a trial that cannot give it back."""
    ray.get(ray.get_actor(pool_name).end_lease.remote(trial_id))


def _wait_for(reference: ray.ObjectRef, check: Callable[[], None]) -> Any:
    while not ray.wait([reference], timeout=0.2)[0]:
        check()
    return ray.get(reference)
