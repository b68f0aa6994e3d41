"""One warm worker group as the worker pool sees it: its ranks, its task, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection
from dataclasses import replace

import ray
import ray.actor
import ray.exceptions

from search.execution.failure_attribution import are_in_step, attribute_failure, rank_names
from search.execution.nodes import describe_layout, lost_nodes
from search.execution.oom import kernel_oom_kills
from search.execution.protocol import Died, Ended, GroupError, Message, Place, Task
from search.text.errors import first_line
from trainables.contract import Layout, Measurement

RANK_GRACE_SECONDS = 10.0  # for the other ranks to end after one has failed
POLL_SECONDS = 1.0  # between two calls of a rank
START_TIMEOUT_SECONDS = 180.0
CLOSE_TIMEOUT_SECONDS = 30.0

_polls: set[asyncio.Task[None]] = set()  # of ranks; asyncio itself keeps weak references only


class Group:
    """State of one worker group. The pool decides who leases it; trials and workers call the other methods.

    `timeout_seconds`: how long a rank may be silent. `on_cluster`: its nodes may be lost, and each measurement says how
    many there are.
    """

    def __init__(self, number: int, layout: Layout, timeout_seconds: float, on_cluster: bool) -> None:
        self.number, self.layout = number, layout
        self.leased_to: str | None = None  # a trial
        self.places: dict[int, Place] = {}  # by rank
        self.closing = False
        self.dead: str | None = None  # the reason; none of its processes is left
        self._timeout_seconds, self._on_cluster = timeout_seconds, on_cluster
        self._workers: dict[int, ray.actor.ActorHandle] = {}  # by rank
        self._oom_kills: dict[int, int] = {}  # by rank: the kernel's count when the rank last answered
        self.out_of_memory: Ended | None = None  # set when it died of that
        self._lost: Ended | Died | None = None  # set when a rank was found silent, or a node is about to go
        self._changed = asyncio.Condition()
        self._task: Task | None = None
        self._task_number = 0
        self._begin(None)

    def _begin(self, task: Task | None) -> None:
        self._task = task
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        self._ends: dict[int, Ended] = {}  # by rank, in order of arrival
        self._reports: dict[int, set[int]] = {}  # by epoch: the ranks that reported it
        self._answers: dict[int, asyncio.Future[bool]] = {}  # by epoch

    @property
    def is_ready(self) -> bool:
        """True when all ranks have asked for a task."""
        return len(self._workers) == self.layout.processes

    # Called by trials

    async def submit(self, task: Task) -> None:
        """Begin a task."""
        self._begin(task)
        self._task_number += 1
        if self._lost or self.dead:
            self._messages.put_nowait(self._lost or Died(self.dead or ""))
        await self.notify()

    async def next_message(self) -> Message:
        """Wait for the next message about the task."""
        return await self._messages.get()

    async def answer(self, epoch: int, go_on: bool) -> None:
        """Answer the report of an epoch, with the same answer on all ranks."""
        self._answer_to(epoch).set_result(go_on)

    # Called by workers

    async def next_task(
        self, rank: int, worker: ray.actor.ActorHandle, place: Place, last_number: int
    ) -> tuple[int, Task | None]:
        """Wait for the task after `last_number`; None: the group is closing."""
        if rank not in self._workers:
            self._workers[rank], self.places[rank] = worker, place
            _polls.add(poll := asyncio.create_task(self._poll(rank)))
            poll.add_done_callback(_polls.discard)
        await self.notify()
        async with self._changed:
            await self._changed.wait_for(lambda: self._task_number > last_number or self.closing)
        return self._task_number, None if self.closing else self._task

    async def report(self, task_number: int, rank: int, measurement: Measurement) -> bool:
        """Pass the measurement of rank 0 on; wait for the answer, which all ranks get."""
        if task_number != self._task_number:
            return False
        if measurement.epoch not in self._reports:
            self._reports[measurement.epoch] = set()
            loop = asyncio.get_running_loop()
            loop.call_later(self._timeout_seconds, self._end_unreported, task_number, measurement.epoch)
        self._reports[measurement.epoch].add(rank)
        if rank == 0:
            if self._on_cluster:
                measurement = replace(measurement, metrics={**measurement.metrics, "nodes": self._num_nodes()})
            self._messages.put_nowait(measurement)
        return await self._answer_to(measurement.epoch)

    async def report_end(self, task_number: int, rank: int, ended: Ended) -> None:
        """Note that a rank has ended its task; pass the end on when all ranks have."""
        self._ends[rank] = ended
        if len(self._ends) == self.layout.processes:
            if not are_in_step(self._ends):
                self.kill()
            self._pass_end_on()
        elif ended.state != "complete" or len(self._ends) == 1:
            # the others may wait for this rank in a collective operation for ever, or hang at their own end
            grace = RANK_GRACE_SECONDS if ended.state != "complete" else self._timeout_seconds
            asyncio.get_running_loop().call_later(grace, self._end_stragglers, task_number)

    async def report_hang(self, task_number: int, rank: int) -> None:
        """End a group of which a rank found itself hanging."""
        if self._task_number == task_number and rank not in self._ends:
            self._fail(f"{rank_names([rank])} did nothing for {self._timeout_seconds:.0f} s")

    # Called by the pool

    def release(self) -> None:
        """Take the group back from its trial."""
        self.leased_to = self._task = None

    async def notify(self) -> None:
        """Let all who wait for a change look again."""
        async with self._changed:
            self._changed.notify_all()

    async def wait_until_ready(self, still_fits: Callable[[], bool]) -> None:
        """Wait for all ranks. A group that does not start is killed and dead.

        Raises:
            GroupError: it did not start.
        """
        async with self._changed:
            try:
                async with asyncio.timeout(START_TIMEOUT_SECONDS):
                    await self._changed.wait_for(lambda: self.is_ready or self.dead or not still_fits())
                if not self.is_ready and not self.dead:
                    self.dead = "nodes of the cluster were lost"
            except TimeoutError:
                self.dead = f"{describe_layout(self.layout)} did not start within {START_TIMEOUT_SECONDS:.0f} s"
        if self.dead:
            self.leased_to = None
            self.kill()
            raise GroupError(self.dead)

    async def ends_within(self, seconds: float) -> bool:
        """Wait for the end of the processes, at most so long; return whether they have ended."""
        with contextlib.suppress(TimeoutError):
            async with self._changed, asyncio.timeout(seconds):
                await self._changed.wait_for(lambda: self.dead)
        return self.dead is not None

    async def close(self) -> None:
        """Ask the processes to end, and wait until they are gone; kill them if that takes too long."""
        self.closing = True
        await self.notify()
        if not await self.ends_within(CLOSE_TIMEOUT_SECONDS):
            self.kill()
            self.dead = "did not end when asked to"

    async def bury(self, rank: int | None, error: BaseException | None) -> None:
        """Note that all processes are gone, by the `error` of a `rank` or of the whole group, or as asked (None).

        If memory ran out, the configuration cannot run here. On a shared cluster Ray itself may kill the process.
        """
        end: Ended | Died = Died("asked to end")
        if error is not None:
            what = type(error).__name__ if rank is None else f"the worker of rank {rank} died{self._where(rank)}"
            places = {place.node_id for place in self.places.values()}
            lost = False
            if self._on_cluster:
                with contextlib.suppress(ray.exceptions.RayError, OSError, RuntimeError):
                    lost = bool(await asyncio.to_thread(lost_nodes, places))
            end, kills = Died(f"{what}: {first_line(error)}", lost), kernel_oom_kills()
            oom = isinstance(error, ray.exceptions.OutOfMemoryError)
            # the kernel counts the kills of this node alone
            if not lost and (not self._on_cluster or places == {ray.get_runtime_context().get_node_id()}):
                oom |= kills > min(self._oom_kills.values(), default=kills)
            if oom:
                end = self.out_of_memory = Ended("infeasible", f"out of host memory: {end.reason}")
        self.dead = end.reason
        self._messages.put_nowait(end)
        await self.notify()

    def kill(self) -> None:
        """Kill the processes."""
        self.closing = True
        for worker in self._workers.values():
            ray.kill(worker)

    # Silent ranks: see the table in search/execution/__init__.py

    async def _poll(self, rank: int) -> None:
        """Call a rank again and again until its group ends, or it does not answer; all its threads may be busy."""
        while True:
            kills = kernel_oom_kills()
            self._oom_kills.setdefault(rank, kills)
            try:
                async with asyncio.timeout(self._timeout_seconds):
                    await self._workers[rank].__ray_ready__.remote()
            except TimeoutError:
                self._fail(f"rank {rank} did not answer for {self._timeout_seconds:.0f} s{self._where(rank)}")
                return
            except ray.exceptions.RayError:
                return  # the process is gone: Ray Train says so, and why
            self._oom_kills[rank] = kills
            await asyncio.sleep(POLL_SECONDS)

    def _end_unreported(self, task_number: int, epoch: int) -> None:
        """End the group unless all ranks have reported the epoch; those that have wait for the answer."""
        missing = sorted(set(range(self.layout.processes)) - self._reports.get(epoch, set()))
        if self._task_number == task_number and self._task and missing and not self._ends:
            self._fail(f"{rank_names(missing)} did not answer for {self._timeout_seconds:.0f} s")

    def _end_stragglers(self, task_number: int) -> None:
        """End the group unless all ranks have ended the task."""
        if self._task_number == task_number and len(self._ends) < self.layout.processes and not self.closing:
            self.kill()
            self._pass_end_on()

    def _pass_end_on(self) -> None:
        self._messages.put_nowait(attribute_failure(self._ends, self.layout.processes, self._timeout_seconds))

    def leave_nodes(self, draining: Collection[str]) -> None:
        """End the group if one of its nodes will soon be taken away; its trial goes on elsewhere."""
        if any(place.node_id in draining for place in self.places.values()):
            self._lose(Died("its node will soon be taken away", node_lost=True))

    def _fail(self, reason: str) -> None:
        self._lose(Ended("failed", reason))

    def _lose(self, end: Ended | Died) -> None:
        if self.closing or self.dead:
            return  # it was asked to end
        self._lost = end
        self.kill()
        self._messages.put_nowait(self._lost)

    def _answer_to(self, epoch: int) -> asyncio.Future[bool]:
        return self._answers.setdefault(epoch, asyncio.get_running_loop().create_future())

    def _num_nodes(self) -> int:
        return len({place.node_id for place in self.places.values()})

    def _where(self, rank: int) -> str:
        """Return ` on 10.0.0.2` if the ranks are on several nodes."""
        return f" on {self.places[rank].address}" if self._num_nodes() > 1 and rank in self.places else ""
