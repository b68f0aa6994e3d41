"""Worker pool: an actor that keeps worker groups warm, keyed by layout, and leases each to one trial at a time.

A group is one run of a Ray Train trainer that stays in its training function and asks the pool for tasks. Starting a
group takes seconds; handing it the next task takes milliseconds.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import threading
from typing import Any

import ray

from search.execution.group import Group
from search.execution.nodes import (
    NODE_ID,
    NODES_POLL_SECONDS,
    Node,
    NodesOfOneKind,
    describe_layout,
    describe_resources,
    draining_nodes,
    has_free,
    total,
)
from search.execution.protocol import BusyError, Ended, GroupError, Place
from trainables.contract import InfeasibleError, Layout, Resources

LEASE_POLL_SECONDS = 0.05
DEATH_SECONDS = 5.0  # for Ray Train to notice that workers were killed, together with their trial's actor
BUSY_AFTER_SECONDS = 3.0  # Ray takes a moment to free what a group has used
MAX_IDLE_GROUPS = 3  # each of their processes keeps about half a GiB
MOST_STARTING_GROUPS = 2 * (os.cpu_count() or 1)  # at a time: more would each be slower, not all together faster
IDLE_CPUS = 0.001  # per process, where the pool itself shares out the cores; Ray Train refuses 0
log = logging.getLogger(__name__)


class WorkerPool:
    """Ray actor that keeps worker groups and leases them. Trials use it through `PoolClient`."""

    def __init__(
        self,
        capacity: Resources,
        nodes: NodesOfOneKind,
        storage: str,
        reserve_cpus: bool,
        timeout_seconds: float,
        hooks: bool,
    ) -> None:
        self._capacity = capacity  # of the nodes that are alive
        self._full_capacity = capacity  # with the nodes that were lost
        self._short_since: float | None = None  # time of the loop since when nodes are lost
        self._nodes = nodes
        self._storage = storage
        self._reserve_cpus = reserve_cpus
        self._timeout_seconds = timeout_seconds
        self._hooks = hooks  # see ray_hooks.py
        self._groups: dict[int, Group] = {}
        self._numbers = itertools.count(1)
        self._following_nodes: asyncio.Task[None] | None = None
        self._leasing = asyncio.Lock()
        self._asking: dict[str, asyncio.Task[Any] | None] = {}  # by trial: its call of `lease`
        self._asked_since: dict[str, float] = {}  # by trial: time of the loop of its first call without a group
        self._itself = ray.get_runtime_context().current_actor

    async def lease(self, layout: Layout, trial_id: str) -> int:
        """Return the number of a live, idle group of this layout. Idle groups of other layouts end to make room.

        Raises:
            InfeasibleError: the layout is larger than the whole pool.
            GroupError: the group did not start, or the nodes that it needs are lost.
            BusyError: others on the cluster use what it needs, or it waits for nodes that were lost; ask again.
        """
        if not self._fits(layout, [], self._full_capacity):
            there = describe_resources(self._full_capacity)
            raise InfeasibleError(f"{describe_layout(layout)}: more than the {there} there are")
        if self._nodes.kind is not None and self._following_nodes is None:
            self._following_nodes = asyncio.create_task(self._follow_nodes())
        self._asking[trial_id] = asyncio.current_task()
        since = self._asked_since.pop(trial_id, asyncio.get_running_loop().time())
        try:
            while True:
                await self._wait_for_nodes(layout, since)
                async with self._leasing:
                    group = await self._lease_when_it_fits(layout, trial_id)
                if group is not None and (group.is_ready or await self._is_started(group)):
                    return group.number
        except BusyError:
            self._asked_since[trial_id] = since
            raise
        finally:
            self._asking.pop(trial_id, None)

    async def warm(self, layout: Layout) -> None:
        """Start a group for the first trial that leases it, which also hears if the group does not start."""
        async with self._leasing:
            if self._fits(layout, []) and await self._is_free(layout):
                self._start(layout)

    async def call_group(self, number: int, method: str, *arguments: Any) -> Any:
        """Call a method of `Group` that is meant for trials or workers."""
        return await getattr(self._groups[number], method)(*arguments)

    async def release(self, number: int) -> None:
        """Take a group back; it stays warm. A dead one is forgotten."""
        self._groups[number].release()
        self._forget_dead()

    async def discard(self, number: int) -> None:
        """Take a group back and kill it, because it does not do what it was asked."""
        group = self._groups[number]
        group.kill()
        group.leased_to = None
        await group.close()
        self._forget_dead()

    async def end_lease(self, trial_id: str) -> Ended | None:
        """Kill the group that is still leased to a trial whose actor is gone; return its end if memory ran out."""
        if asking := self._asking.get(trial_id):
            asking.cancel()  # Ray lets the call of a dead actor run on
        for group in list(self._groups.values()):
            if group.leased_to == trial_id:
                await group.ends_within(DEATH_SECONDS)
                await self.discard(group.number)
                return group.out_of_memory
        return None

    async def places(self, trial_id: str) -> dict[int, Place]:
        """Return the processes of a trial by rank; empty: it has none now."""
        return next((dict(g.places) for g in self._groups.values() if g.leased_to == trial_id), {})

    async def _follow_nodes(self) -> None:
        while True:
            try:
                self._take_in(await asyncio.to_thread(self._nodes.live))
                draining = await asyncio.to_thread(draining_nodes)
                for group in list(self._groups.values()):
                    group.leave_nodes(draining)
                    if not group.is_ready:
                        await group.notify()  # its nodes may be gone
            except Exception:
                log.warning("nodes of the cluster are not known for a moment", exc_info=True)
            await asyncio.sleep(NODES_POLL_SECONDS)

    def _take_in(self, nodes: list[Node]) -> None:
        """Note what the live nodes have; they may be more than at the start."""
        self._capacity = total(nodes)
        if self._capacity.cpus >= self._full_capacity.cpus and self._capacity.gpus >= self._full_capacity.gpus:
            self._full_capacity, self._short_since = self._capacity, None
        elif self._short_since is None:
            self._short_since = asyncio.get_running_loop().time()

    async def _wait_for_nodes(self, layout: Layout, since: float) -> None:
        """Wait a moment for the nodes of a layout, for which a trial has asked `since` then.

        Raises:
            BusyError: the cluster lost some of them; ask again.
            GroupError: it did not get them back in time.
        """
        now = asyncio.get_running_loop().time
        deadline, timeout = now() + BUSY_AFTER_SECONDS, max(self._timeout_seconds, self._nodes.wait_seconds)
        while not self._fits(layout, []):
            left = describe_resources(self._capacity)
            if self._short_since is not None and now() > max(self._short_since, since) + timeout:
                raise GroupError(f"{describe_layout(layout)}: more than the {left} that the cluster still has")
            if now() > deadline:
                raise BusyError(f"waits for {describe_layout(layout)}; the cluster has lost nodes, and {left} left")
            await asyncio.sleep(LEASE_POLL_SECONDS)

    async def _lease_when_it_fits(self, layout: Layout, trial_id: str) -> Group | None:
        """Return a group as soon as there is room; it may still be starting. None: nodes that it needs were lost."""
        while self._fits(layout, []):
            groups = [g for g in self._groups.values() if g.dead is None and not g.closing]
            idle = [g for g in groups if g.leased_to is None]
            leased = [g for g in groups if g.leased_to is not None]
            for group in idle:
                if group.layout == layout and self._fits(layout, leased):
                    group.leased_to = trial_id
                    return group
            if len(self._starting()) >= MOST_STARTING_GROUPS:
                await asyncio.sleep(LEASE_POLL_SECONDS)
            elif self._fits(layout, list(self._groups.values())) and len(idle) <= MAX_IDLE_GROUPS:
                if not await self._is_free(layout):
                    if not idle:
                        why = "no node has free beside other trials" if leased else "others on the cluster use"
                        raise BusyError(f"waits for {describe_layout(layout)}, which {why}")
                    await self._close(idle[0])
                    continue
                group = self._start(layout)
                group.leased_to = trial_id
                return group
            elif idle:
                await self._close(idle[0])
            else:
                await asyncio.sleep(LEASE_POLL_SECONDS)
        return None

    async def _close(self, group: Group) -> None:
        """Close an idle group, wholly also where the lease that needs the room is withdrawn."""
        await asyncio.shield(group.close())
        self._forget_dead()

    async def _is_free(self, layout: Layout) -> bool:
        """Return whether others on a shared cluster leave what a layout needs, after a moment for what was ours.

        A group that is starting may not have claimed its resources yet, so they count as used twice until it is ready.
        """
        now = asyncio.get_running_loop().time
        deadline = now() + BUSY_AFTER_SECONDS
        while self._reserve_cpus:
            starting = self._starting()
            layouts = [*(group.layout for group in starting), layout]
            if has_free(await asyncio.to_thread(self._nodes.live), layouts):
                break
            if starting:
                deadline = now() + BUSY_AFTER_SECONDS
            elif now() > deadline:
                return False
            await asyncio.sleep(LEASE_POLL_SECONDS)
        return True

    def _starting(self) -> list[Group]:
        return [group for group in self._groups.values() if not group.is_ready and group.dead is None]

    def _start(self, layout: Layout) -> Group:
        """Begin to start a group; `_is_started` waits for it."""
        group = Group(next(self._numbers), layout, self._timeout_seconds, self._nodes.kind is not None)
        self._groups[group.number] = group
        loop = asyncio.get_running_loop()

        def run() -> None:
            death: tuple[int | None, BaseException | None]
            try:
                from search.execution.trainer import run_group

                cpus = layout.cpus_per_process if self._reserve_cpus else IDLE_CPUS
                group_of_ranks = self._itself, group.number, layout, cpus
                labels = self._label_selector()
                death = run_group(*group_of_ranks, labels, self._storage, self._timeout_seconds, self._hooks)
            except Exception as error:  # whatever it is, the trial that waits for this group must be told
                death = None, error
            asyncio.run_coroutine_threadsafe(self._bury(group, *death), loop)

        threading.Thread(target=run, daemon=True, name=f"group-{group.number}").start()
        return group

    async def _is_started(self, group: Group) -> bool:
        """Return that the group is ready; False: nodes that it needs were lost meanwhile.

        Raises:
            GroupError: it did not start.
        """
        try:
            await group.wait_until_ready(lambda: self._fits(group.layout, []))
            return True
        except GroupError:
            if self._fits(group.layout, []):
                raise
            return False
        finally:
            self._forget_dead()

    def _label_selector(self) -> dict[str, str] | None:
        """Return what keeps the processes of a group on the nodes that run trials; None: there are no others."""
        if self._nodes.kind is None:
            return None
        return {NODE_ID: f"in({','.join(node.node_id for node in self._nodes.live())})"}

    async def _bury(self, group: Group, rank: int | None, error: BaseException | None) -> None:
        await group.bury(rank, error)
        self._forget_dead()

    def _forget_dead(self) -> None:
        """Forget the dead groups that no trial holds."""
        self._groups = {n: g for n, g in self._groups.items() if g.dead is None or g.leased_to is not None}

    def _fits(self, layout: Layout, groups: list[Group], capacity: Resources | None = None) -> bool:
        """Return whether a layout fits beside these groups. An idle group occupies its GPUs, but no cores."""
        alive = [g for g in groups if g.dead is None]
        busy = [g for g in alive if self._reserve_cpus or g.leased_to is not None or g.closing]
        gpus = sum(x.processes * x.gpus_per_process for x in [layout, *(g.layout for g in alive)])
        cpus = sum(x.processes * x.cpus_per_process for x in [layout, *(g.layout for g in busy)])
        capacity = capacity or self._capacity
        return cpus <= capacity.cpus and gpus <= capacity.gpus
