"""Warm Ray Train worker groups, keyed by layout: started once, then handed one task after another.

A group is one `TorchTrainer.fit()` that stays in its training function and asks the pool for work. Starting one takes
seconds; handing it the next task takes milliseconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import ray
import ray.actor

from search.serve import Died, Ended, Message, Task, serve
from trainables.contract import InfeasibleError, Layout, Measurement, Resources

RANK_GRACE_SECONDS = 10.0  # after one rank has failed, the others are given this long before their group is ended
LEASE_POLL_SECONDS = 0.05
RESTING_CPUS = 0.001  # Ray Train wants its workers to ask for something
MAX_IDLE_GROUPS = 3  # each process of one keeps about half a GiB
START_TIMEOUT_SECONDS = 180.0
# Ray Train trains in a thread. Its heap would be of the kind of glibc's that cannot hold a block of 64 MB, so that
# a large batch asks the system for its memory anew in each step: 0.6 to 0.8 of the rate (results/LOG.md).
ENVIRONMENT = {"MALLOC_ARENA_MAX": "1"}
CLOSE_TIMEOUT_SECONDS = 30.0


class GroupError(Exception):
    """A worker group did not start; the message says why."""


# --- in the driver ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def worker_pool(name: str, capacity: Resources, storage: str, reserve_cpus: bool) -> Iterator[ray.actor.ActorHandle]:
    """A pool that trials find by its name; at the end its groups are gone.

    `storage` takes what Ray Train writes, none of it needed afterwards. `reserve_cpus`: tell Ray which CPUs the groups
    use, as is due on a cluster that others share. On a cluster of our own the pool alone says who may work, and groups
    that rest stay warm beside each other.
    """
    actor = ray.remote(num_cpus=0, name=name, max_concurrency=1000)(WorkerPool)
    pool = actor.remote(capacity, storage, reserve_cpus)
    try:
        yield pool
    finally:
        ray.kill(pool)  # its groups are its own and end with it


def call(pool: ray.actor.ActorHandle, layout: Layout, task: Task, check: Callable[[], None]) -> Ended | Died:
    """Run a task that reports nothing on the way, and wait for its end; `check` is called all the while.

    Raises:
        InfeasibleError, GroupError: as `WorkerPool.lease`.
    """
    group = _wait_for(pool.lease.remote(layout, task.trial_id), check)
    ray.get(pool.submit.remote(group, task))
    try:
        message: Ended | Died = _wait_for(pool.next_message.remote(group), check)
        return message
    finally:
        ray.get(pool.release.remote(group))


def end_lease(pool_name: str, trial_id: str) -> None:
    """End whatever group is still leased to a trial that cannot give it back."""
    ray.get(ray.get_actor(pool_name).end_lease.remote(trial_id))


def _wait_for(reference: ray.ObjectRef, check: Callable[[], None]) -> Any:
    while not ray.wait([reference], timeout=0.2)[0]:
        check()
    return ray.get(reference)


# --- the pool ---------------------------------------------------------------------------------------------------------


class _Group:
    """One worker group as the pool sees it: what it is asked, what it answers, whether it lives."""

    def __init__(self, number: int, layout: Layout) -> None:
        self.number = number
        self.layout = layout
        self.leased_to: str | None = None
        self.workers: dict[int, ray.actor.ActorHandle] = {}  # by rank, as they report for work
        self.task_number = 0
        self.task: Task | None = None
        self.closing = False
        self.dead: str | None = None  # why
        self.messages: asyncio.Queue[Message] = asyncio.Queue()
        self.changed = asyncio.Condition()
        self.ends: dict[int, Ended] = {}  # of the current task, by rank
        self.answers: dict[int, asyncio.Future[bool]] = {}  # to the reports of the current task, by epoch

    @property
    def ready(self) -> bool:
        return len(self.workers) == self.layout.processes

    def submit(self, task: Task) -> None:
        self.task, self.task_number = task, self.task_number + 1
        self.ends, self.answers, self.messages = {}, {}, asyncio.Queue()

    def verdict(self) -> Ended:
        """What the ranks' ends come to: the first that is not complete speaks for all."""
        for rank, end in sorted(self.ends.items()):
            if end.state != "complete":
                several = self.layout.processes > 1
                return Ended(end.state, f"rank {rank}: {end.reason}" if several else end.reason)
        return self.ends[0]

    def kill(self) -> None:
        self.closing = True
        for worker in self.workers.values():
            ray.kill(worker)


class WorkerPool:
    """The Ray actor that keeps worker groups up and leases each to one trial at a time.

    Trials call `lease`, `submit`, `next_message`, `answer`, `release`; workers call `next_task`, `report`, `ended`.
    """

    def __init__(self, capacity: Resources, storage: str, reserve_cpus: bool) -> None:
        self._capacity = capacity
        self._storage = storage
        self._reserve_cpus = reserve_cpus
        self._groups: dict[int, _Group] = {}
        self._numbers = itertools.count(1)
        self._leasing = asyncio.Lock()
        self._itself = ray.get_runtime_context().current_actor

    # Trials

    async def lease(self, layout: Layout, trial_id: str) -> int:
        """The number of a live, idle group of this layout. Ends idle groups of other layouts where they are in the way.

        Raises:
            InfeasibleError: the layout is larger than the whole pool.
            GroupError: the group did not start.
        """
        if not self._fits(layout, []):
            raise InfeasibleError(f"{layout} needs more than the {self._capacity} there are")
        async with self._leasing:
            while True:
                groups = [g for g in self._groups.values() if g.dead is None and not g.closing]
                idle = [g for g in groups if g.leased_to is None]
                used = [g for g in groups if g.leased_to is not None]
                for group in idle:
                    if group.layout == layout and self._fits(layout, used):
                        group.leased_to = trial_id
                        return group.number
                if self._fits(layout, list(self._groups.values())) and len(idle) <= MAX_IDLE_GROUPS:
                    return await self._start(layout, trial_id)
                if idle:
                    await self._close(idle[0])
                else:
                    await asyncio.sleep(LEASE_POLL_SECONDS)

    async def submit(self, number: int, task: Task) -> None:
        """Hand a task to a leased group."""
        group = self._groups[number]
        group.submit(task)
        if group.dead:
            group.messages.put_nowait(Died(group.dead))
        await self._notify(group)

    async def next_message(self, number: int) -> Message:
        """The next thing that the group has to say about its task: a Measurement, Ended or Died."""
        return await self._groups[number].messages.get()

    async def answer(self, number: int, epoch: int, go_on: bool) -> None:
        """Answer the report of an epoch, on all ranks alike."""
        self._answer(self._groups[number], epoch).set_result(go_on)

    async def release(self, number: int) -> None:
        """Give the group back; it stays warm. A dead one is forgotten."""
        group = self._groups[number]
        group.leased_to, group.task = None, None
        self._forget_if_dead(group)

    async def discard(self, number: int) -> None:
        """Give the group back and end it, because it does not do what it was asked."""
        group = self._groups[number]
        group.kill()
        group.leased_to = None
        await self._wait_until_dead(group)

    async def end_lease(self, trial_id: str) -> None:
        """End whatever group is still leased to a trial whose Ray Tune actor is gone."""
        for group in list(self._groups.values()):
            if group.leased_to == trial_id:
                await self.discard(group.number)

    # Workers

    async def next_task(
        self, number: int, rank: int, worker: ray.actor.ActorHandle, last: int
    ) -> tuple[int, Task | None]:
        """Wait for the task after `last`; None: there will be none."""
        group = self._groups[number]
        group.workers[rank] = worker
        await self._notify(group)
        async with group.changed:
            await group.changed.wait_for(lambda: group.task_number > last or group.closing)
        return group.task_number, None if group.closing else group.task

    async def report(self, number: int, task_number: int, rank: int, measurement: Measurement) -> bool:
        """Pass rank 0's measurement on, and wait for the answer to it."""
        group = self._groups[number]
        if task_number != group.task_number:
            return False
        if rank == 0:
            group.messages.put_nowait(measurement)
        return await self._answer(group, measurement.epoch)

    async def ended(self, number: int, task_number: int, rank: int, ended: Ended) -> None:
        """A rank is done with its task."""
        group = self._groups[number]
        group.ends[rank] = ended
        if len(group.ends) == group.layout.processes:
            if len({end.state for end in group.ends.values()}) > 1:
                group.kill()  # ranks that part ways leave collective operations half done
            group.messages.put_nowait(group.verdict())
        elif ended.state != "complete" and len(group.ends) == 1:
            # the other ranks may be waiting for this one in a collective operation, for ever
            asyncio.get_running_loop().call_later(RANK_GRACE_SECONDS, self._end_stragglers, group, task_number)

    # Groups

    async def _start(self, layout: Layout, trial_id: str) -> int:
        group = _Group(next(self._numbers), layout)
        group.leased_to = trial_id
        self._groups[group.number] = group
        loop = asyncio.get_running_loop()

        def fit() -> None:
            cpus = layout.cpus_per_process if self._reserve_cpus else RESTING_CPUS
            reason = _fit(self._itself, group.number, layout, cpus, self._storage)
            asyncio.run_coroutine_threadsafe(self._buried(group, reason), loop)

        threading.Thread(target=fit, daemon=True, name=f"group-{group.number}").start()
        async with group.changed:
            try:
                async with asyncio.timeout(START_TIMEOUT_SECONDS):
                    await group.changed.wait_for(lambda: group.ready or group.dead)
            except TimeoutError:
                group.dead = f"not all workers of {layout} started within {START_TIMEOUT_SECONDS:.0f} s"
        if group.dead:
            group.leased_to = None
            group.kill()
            self._forget_if_dead(group)
            raise GroupError(group.dead)
        return group.number

    async def _close(self, group: _Group) -> None:
        group.closing = True
        await self._notify(group)
        await self._wait_until_dead(group)

    async def _wait_until_dead(self, group: _Group) -> None:
        async with group.changed:
            try:
                async with asyncio.timeout(CLOSE_TIMEOUT_SECONDS):
                    await group.changed.wait_for(lambda: group.dead)
            except TimeoutError:
                group.kill()
                group.dead = "did not end when asked to"
        self._forget_if_dead(group)

    async def _buried(self, group: _Group, reason: str) -> None:
        group.dead = reason
        group.messages.put_nowait(Died(reason))
        await self._notify(group)
        self._forget_if_dead(group)

    def _forget_if_dead(self, group: _Group) -> None:
        if group.dead is not None and group.leased_to is None:
            self._groups.pop(group.number, None)

    async def _notify(self, group: _Group) -> None:
        async with group.changed:
            group.changed.notify_all()

    def _answer(self, group: _Group, epoch: int) -> asyncio.Future[bool]:
        return group.answers.setdefault(epoch, asyncio.get_running_loop().create_future())

    def _end_stragglers(self, group: _Group, task_number: int) -> None:
        if group.task_number == task_number and len(group.ends) < group.layout.processes:
            group.kill()
            group.messages.put_nowait(group.verdict())

    def _fits(self, layout: Layout, groups: list[_Group]) -> bool:
        """Whether there is place for the layout beside these groups. At rest, a group holds GPU memory, but no core."""
        alive = [g for g in groups if g.dead is None]
        busy = [g for g in alive if self._reserve_cpus or g.leased_to is not None or g.closing]
        gpus = sum(x.processes * x.gpus_per_process for x in [layout, *(g.layout for g in alive)])
        cpus = sum(x.processes * x.cpus_per_process for x in [layout, *(g.layout for g in busy)])
        return cpus <= self._capacity.cpus and gpus <= self._capacity.gpus


def _fit(pool: ray.actor.ActorHandle, number: int, layout: Layout, cpus: float, storage: str) -> str:
    """Run a group until it ends; say why it did."""
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer
    from ray.train.v2.api.exceptions import WorkerGroupError

    trainer = TorchTrainer(
        serve,
        train_loop_config={"pool": pool, "group": number, "layout": layout},
        scaling_config=ScalingConfig(
            num_workers=layout.processes,
            use_gpu=layout.gpus_per_process > 0,
            resources_per_worker={
                "CPU": cpus,
                **({"GPU": layout.gpus_per_process} if layout.gpus_per_process else {}),
            },
        ),
        run_config=RunConfig(
            name=f"group-{number}",
            storage_path=storage,
            failure_config=FailureConfig(max_failures=0),
            worker_runtime_env={"env_vars": ENVIRONMENT},
        ),
    )
    try:
        trainer.fit()
    except WorkerGroupError as error:
        rank, cause = next(iter(error.worker_failures.items()), (0, error))
        # Ray Train wraps what happened to the process in "A worker health check failed."
        return f"the worker of rank {rank} died: {_first_line(getattr(cause, 'health_check_failure', cause))}"
    except Exception as error:  # whatever it is, the trial that waits for this group must hear of it
        return f"{type(error).__name__}: {_first_line(error)}"
    return "asked to end"


def _first_line(error: BaseException) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__).strip()
