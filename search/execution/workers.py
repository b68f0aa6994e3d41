"""Worker pool as the driver of a run uses it."""

from __future__ import annotations

import contextlib
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import ray
import ray.actor
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from search.execution import ray_hooks
from search.execution.nodes import NodesOfOneKind
from search.execution.pool import WorkerPool
from search.execution.protocol import BusyError, Died, Ended, GroupError, PoolClient, Task
from trainables.contract import Layout, Measurement, Resources, timeout_seconds

PENDING_CALLS = 100_000  # of all trials and ranks; further ones would wait for answers that they must bring themselves


@dataclass(frozen=True)
class Pool:
    """Actor that keeps worker groups warm, and the name under which trials find it."""

    name: str
    actor: ray.actor.ActorHandle
    storage: str  # a folder for Ray's own files, none of which is needed afterwards


@contextlib.contextmanager
def worker_pool(capacity: Resources, reserve_cpus: bool, nodes: NodesOfOneKind | None = None) -> Iterator[Pool]:
    """Start a worker pool; at the end its groups are gone.

    `reserve_cpus`: tell Ray which CPUs the groups use, as is due on a shared cluster. On a cluster that this run owns
    the pool alone decides who may work, and idle groups of several layouts stay warm beside each other. `nodes`: those
    that run trials; None: this machine alone.
    """
    name = f"worker-pool-{uuid.uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory(prefix="training-search-", ignore_cleanup_errors=True) as storage:
        beside_driver = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        options = {"num_cpus": 0, "name": name, "max_concurrency": PENDING_CALLS}
        remote = ray.remote(**options, scheduling_strategy=beside_driver)(WorkerPool)
        nodes = nodes or NodesOfOneKind()
        actor = remote.remote(capacity, nodes, storage, reserve_cpus, timeout_seconds(), ray_hooks.are_tested())
        try:
            yield Pool(name, actor, storage)
        finally:
            ray.kill(actor)  # it owns its groups, which end with it


def run_task(
    pool: ray.actor.ActorHandle,
    layout: Layout,
    task: Task,
    check: Callable[[], None],
    goes_on: Callable[[Measurement], bool] = lambda measurement: True,
) -> Ended | Died:
    """Run a task to its end, or until `goes_on` says no to a report.

    Return the end with the metrics that it reported last. `check` is called all the while.

    Raises:
        InfeasibleError, GroupError: as `WorkerPool.lease`; also, others on the cluster use what it needs for too long.
    """

    def wait(reference: ray.ObjectRef) -> Any:
        while not ray.wait([reference], timeout=0.2)[0]:
            check()
        return ray.get(reference)

    client = PoolClient(pool, wait)
    last_try = time.monotonic() + timeout_seconds()
    while not client.has_group:
        check()
        try:
            client.submit(layout, task)
        except BusyError as busy:
            if time.monotonic() > last_try:
                raise GroupError(f"{busy}") from busy
    try:
        reported: Mapping[str, float] = {}
        while isinstance(message := client.next_message(), Measurement):
            reported = message.metrics
            client.answer(go_on=goes_on(message))
        return replace(message, metrics=reported) if reported and isinstance(message, Ended) else message
    finally:
        client.release()


def end_lease(pool_name: str, trial_id: str) -> Ended | None:
    """Kill the group that is still leased to a trial whose actor is gone; return its end if memory ran out."""
    ended: Ended | None = ray.get(ray.get_actor(pool_name).end_lease.remote(trial_id))
    return ended
