"""The worker pool: an actor that keeps worker groups warm, keyed by layout, and lends each to one trial at a time.

A group is one run of a Ray Train trainer that stays in its training function and asks the pool for work. Starting
one takes seconds; handing it the next task takes milliseconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading

import ray
import ray.actor
import ray.exceptions

from search.execution.blame import in_step, named, verdict
from search.execution.group import RESTING_CPUS, Group
from search.execution.group import fit as fit_group
from search.execution.nodes import alike, alive, needed, offered
from search.execution.serve import Died, Ended, Message, Place, Task
from search.execution.shortage import kernel_kills
from trainables.contract import InfeasibleError, Layout, Measurement, Resources

RANK_GRACE_SECONDS = 10.0  # after one rank has failed, the others are given this long before their group is ended
WATCH_SECONDS = 1.0  # between two calls at a rank, to learn whether it answers
LEASE_POLL_SECONDS = 0.05
MAX_IDLE_GROUPS = 3  # each process of one keeps about half a GiB
START_TIMEOUT_SECONDS = 180.0
CLOSE_TIMEOUT_SECONDS = 30.0


class GroupError(Exception):
    """A worker group did not start; the message says why."""


class WorkerPool:
    """The Ray actor that keeps worker groups up and leases each to one trial at a time.

    Trials call `lease`, `submit`, `next_message`, `answer`, `release`; workers call `next_task`, `report`, `ended`.

    Where the process of a rank is gone, Ray Train ends its group within seconds, and the trial has `Died`. A rank that
    keeps the others waiting, or does not answer the pool, for longer than `patience` seconds ends it too, and the trial
    has failed. A cluster that has lost nodes is given as long to get them back, where a trial needs them.
    """

    def __init__(self, capacity: Resources, storage: str, reserve_cpus: bool, patience: float) -> None:
        self._capacity = capacity  # of the nodes that are there
        self._whole = capacity  # with those that were there at first
        self._storage = storage
        self._reserve_cpus = reserve_cpus
        self._patience = patience
        self._groups: dict[int, Group] = {}
        self._numbers = itertools.count(1)
        self._watches: set[asyncio.Task[None]] = set()  # of each rank of each group; kept, or asyncio forgets them
        self._following: asyncio.Task[None] | None = None  # of the nodes of a cluster
        self._leasing = asyncio.Lock()
        self._itself = ray.get_runtime_context().current_actor

    # Trials

    async def lease(self, layout: Layout, trial_id: str) -> int:
        """The number of a live, idle group of this layout. Ends idle groups of other layouts where they are in the way.

        Raises:
            InfeasibleError: the layout is larger than the whole pool.
            GroupError: the group did not start, or the nodes for it are gone.
        """
        if not self._fits(layout, [], self._whole):
            raise InfeasibleError(f"{needed(layout)}: more than the {offered(self._whole)} there are")
        if self._whole.nodes > 1 and self._following is None:
            self._following = asyncio.create_task(self._follow_nodes())
        while True:
            await self._nodes_for(layout)
            async with self._leasing:
                if (number := await self._lease_where_it_fits(layout, trial_id)) is not None:
                    return number

    async def warm(self, layout: Layout) -> None:
        """Start a group for whoever leases it. If it does not start, whoever leases it will hear of it."""
        with contextlib.suppress(InfeasibleError, GroupError):
            await self.release(await self.lease(layout, ""))

    async def submit(self, number: int, task: Task) -> None:
        """Hand a task to a leased group."""
        group = self._groups[number]
        group.submit(task)
        if group.lost or group.dead:
            group.messages.put_nowait(group.lost or Died(group.dead or ""))
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

    async def places(self, trial_id: str) -> dict[int, Place]:
        """Where the processes of a trial are, by rank; none: it has none now."""
        return next((dict(g.places) for g in self._groups.values() if g.leased_to == trial_id), {})

    # Workers

    async def next_task(
        self, number: int, rank: int, worker: ray.actor.ActorHandle, place: Place, last: int
    ) -> tuple[int, Task | None]:
        """Wait for the task after `last`; None: there will be none."""
        group = self._groups[number]
        if rank not in group.workers:
            group.workers[rank], group.places[rank] = worker, place
            self._watches.add(watch := asyncio.create_task(self._watch(group, rank)))
            watch.add_done_callback(self._watches.discard)
        await self._notify(group)
        async with group.changed:
            await group.changed.wait_for(lambda: group.task_number > last or group.closing)
        return group.task_number, None if group.closing else group.task

    async def report(self, number: int, task_number: int, rank: int, measurement: Measurement) -> bool:
        """Pass rank 0's measurement on, and wait for the answer to it."""
        group = self._groups[number]
        if task_number != group.task_number:
            return False
        if measurement.epoch not in group.reports:
            group.reports[measurement.epoch] = set()
            loop = asyncio.get_running_loop()
            loop.call_later(self._patience, self._end_unreported, group, task_number, measurement.epoch)
        group.reports[measurement.epoch].add(rank)
        if rank == 0:
            group.messages.put_nowait(self._with_nodes(measurement, group))
        return await self._answer(group, measurement.epoch)

    async def ended(self, number: int, task_number: int, rank: int, ended: Ended) -> None:
        """A rank is done with its task."""
        group = self._groups[number]
        group.ends[rank] = ended
        if len(group.ends) == group.layout.processes:
            if not in_step(group.ends):
                group.kill()  # collective operations are half done
            self._tell_verdict(group)
        elif ended.state != "complete" or len(group.ends) == 1:
            # the others may wait for this one in a collective operation for ever, or it may have been the last to work
            grace = RANK_GRACE_SECONDS if ended.state != "complete" else self._patience
            asyncio.get_running_loop().call_later(grace, self._end_stragglers, group, task_number)

    async def hangs(self, number: int, task_number: int, rank: int) -> None:
        """A rank found that it does nothing."""
        group = self._groups[number]
        if group.task_number == task_number and rank not in group.ends:
            self._lose(group, Ended("failed", f"{named([rank])} did nothing for {self._patience:.0f} s"))

    # Nodes

    async def _follow_nodes(self) -> None:
        while True:
            self._capacity = alike(await asyncio.to_thread(alive))
            for group in list(self._groups.values()):
                if not group.ready:
                    await self._notify(group)  # its nodes may be gone
            await asyncio.sleep(WATCH_SECONDS)

    async def _nodes_for(self, layout: Layout) -> None:
        """Wait until the cluster has the nodes for it.

        Raises:
            GroupError: it lost some, and did not get them back in time.
        """
        deadline = asyncio.get_running_loop().time() + self._patience
        while not self._fits(layout, []):
            if asyncio.get_running_loop().time() > deadline:
                raise GroupError(
                    f"{needed(layout)}: more than the {offered(self._capacity)} that the cluster still has"
                )
            await asyncio.sleep(WATCH_SECONDS)

    # Groups

    async def _lease_where_it_fits(self, layout: Layout, trial_id: str) -> int | None:
        """The number of a group, as soon as others leave it the place; None: nodes that it needs were lost."""
        while self._fits(layout, []):
            groups = [g for g in self._groups.values() if g.dead is None and not g.closing]
            idle = [g for g in groups if g.leased_to is None]
            used = [g for g in groups if g.leased_to is not None]
            for group in idle:
                if group.layout == layout and self._fits(layout, used):
                    group.leased_to = trial_id
                    return group.number
            if self._fits(layout, list(self._groups.values())) and len(idle) <= MAX_IDLE_GROUPS:
                try:
                    return await self._start(layout, trial_id)
                except GroupError:
                    if self._fits(layout, []):
                        raise
            elif idle:
                await self._close(idle[0])
            else:
                await asyncio.sleep(LEASE_POLL_SECONDS)
        return None

    async def _start(self, layout: Layout, trial_id: str) -> int:
        group = Group(next(self._numbers), layout)
        group.leased_to = trial_id
        self._groups[group.number] = group
        loop = asyncio.get_running_loop()

        def fit() -> None:
            cpus = layout.cpus_per_process if self._reserve_cpus else RESTING_CPUS
            rank, error = fit_group(self._itself, group.number, layout, cpus, self._storage, self._patience)
            asyncio.run_coroutine_threadsafe(self._buried(group, rank, error), loop)

        threading.Thread(target=fit, daemon=True, name=f"group-{group.number}").start()
        async with group.changed:
            try:
                async with asyncio.timeout(START_TIMEOUT_SECONDS):
                    await group.changed.wait_for(lambda: group.ready or group.dead or not self._fits(layout, []))
                if not group.ready and not group.dead:
                    group.dead = "nodes of the cluster were lost"
            except TimeoutError:
                group.dead = f"{needed(layout)} did not start within {START_TIMEOUT_SECONDS:.0f} s"
        if group.dead:
            group.leased_to = None
            group.kill()
            self._forget_if_dead(group)
            raise GroupError(group.dead)
        return group.number

    async def _close(self, group: Group) -> None:
        group.closing = True
        await self._notify(group)
        await self._wait_until_dead(group)

    async def _wait_until_dead(self, group: Group) -> None:
        async with group.changed:
            try:
                async with asyncio.timeout(CLOSE_TIMEOUT_SECONDS):
                    await group.changed.wait_for(lambda: group.dead)
            except TimeoutError:
                group.kill()
                group.dead = "did not end when asked to"
        self._forget_if_dead(group)

    async def _buried(self, group: Group, rank: int | None, error: BaseException | None) -> None:
        end = group.death(rank, error) if error else Died("asked to end")
        group.dead = end.reason
        group.messages.put_nowait(end)
        await self._notify(group)
        self._forget_if_dead(group)

    def _forget_if_dead(self, group: Group) -> None:
        if group.dead is not None and group.leased_to is None:
            self._groups.pop(group.number, None)

    async def _notify(self, group: Group) -> None:
        async with group.changed:
            group.changed.notify_all()

    def _answer(self, group: Group, epoch: int) -> asyncio.Future[bool]:
        return group.answers.setdefault(epoch, asyncio.get_running_loop().create_future())

    def _end_stragglers(self, group: Group, task_number: int) -> None:
        if group.task_number == task_number and len(group.ends) < group.layout.processes and not group.closing:
            group.kill()
            self._tell_verdict(group)

    def _end_unreported(self, group: Group, task_number: int, epoch: int) -> None:
        """Unless all ranks have reported the epoch that one of them did; those that have wait for the answer."""
        missing = sorted(set(range(group.layout.processes)) - group.reports.get(epoch, set()))
        if group.task_number == task_number and group.task and missing and not group.ends:
            self._lose(group, Ended("failed", f"{named(missing)} did not answer for {self._patience:.0f} s"))

    def _tell_verdict(self, group: Group) -> None:
        group.messages.put_nowait(verdict(group.ends, group.layout.processes, self._patience))

    async def _watch(self, group: Group, rank: int) -> None:
        """Call at a rank until its group ends, or it is found silent. Its threads may be busy all the time."""
        while True:
            kills = kernel_kills()
            group.kills.setdefault(rank, kills)
            try:
                async with asyncio.timeout(self._patience):
                    await group.workers[rank].__ray_ready__.remote()
            except TimeoutError:
                reason = f"rank {rank} did not answer for {self._patience:.0f} s{group.where(rank)}"
                self._lose(group, Ended("failed", reason))
                return
            except ray.exceptions.RayError:
                return  # it is gone: Ray Train says so, and why
            group.kills[rank] = kills
            await asyncio.sleep(WATCH_SECONDS)

    def _lose(self, group: Group, message: Ended) -> None:
        if group.closing or group.dead:
            return  # it was asked to end
        group.lost = message
        group.kill()
        group.messages.put_nowait(message)

    def _with_nodes(self, measurement: Measurement, group: Group) -> Measurement:
        """The same, and on how many nodes it was made, where there are several."""
        if self._whole.nodes == 1:
            return measurement
        nodes = len({place.node_id for place in group.places.values()})
        return Measurement(measurement.epoch, {**measurement.metrics, "nodes": nodes})

    def _fits(self, layout: Layout, groups: list[Group], capacity: Resources | None = None) -> bool:
        """Whether there is place for the layout beside these groups. At rest, a group holds GPU memory, but no core."""
        alive = [g for g in groups if g.dead is None]
        busy = [g for g in alive if self._reserve_cpus or g.leased_to is not None or g.closing]
        gpus = sum(x.processes * x.gpus_per_process for x in [layout, *(g.layout for g in alive)])
        cpus = sum(x.processes * x.cpus_per_process for x in [layout, *(g.layout for g in busy)])
        capacity = capacity or self._capacity
        return cpus <= capacity.cpus and gpus <= capacity.gpus
