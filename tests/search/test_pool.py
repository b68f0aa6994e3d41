"""Worker pool in this process: its groups are threads that do nothing, without Ray."""

import asyncio
import threading
from types import SimpleNamespace

import pytest
import ray

from search.execution import group as group_module
from search.execution import pool as pool_module
from search.execution import trainer
from search.execution.group import Group
from search.execution.nodes import Kind, Node, NodesOfOneKind
from search.execution.pool import WorkerPool
from search.execution.protocol import BusyError, Died, Ended, GroupError, Place
from trainables.contract import Layout, Resources

WORKER = SimpleNamespace(__ray_ready__=SimpleNamespace(remote=lambda: asyncio.sleep(0)))


def run_with_pool(monkeypatch, cpus, reserve_cpus, before_ready, use, end=(None, None)):
    """Call `use` with a pool whose groups call `before_ready` while they start; return what it returns.

    A group ends when it is closed, or at its first task with `end`: the rank that ended it, and its error.
    """

    async def main():
        loop = asyncio.get_running_loop()

        def run_group(pool, number, *_):
            before_ready(number)
            asked = pool.call_group(number, "next_task", 0, WORKER, Place("node", "here", 1), 0)
            task_number, _ = asyncio.run_coroutine_threadsafe(asked, loop).result()
            return end if task_number else (None, None)

        monkeypatch.setattr(trainer, "run_group", run_group)
        monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(current_actor=None))
        pool = WorkerPool(Resources(cpus), NodesOfOneKind(), "", reserve_cpus, 60.0, False)
        pool._itself = pool
        try:
            return await use(pool)
        finally:
            await asyncio.gather(*(group.close() for group in pool._groups.values()))

    return asyncio.run(main())


def test_groups_of_several_trials_start_together(monkeypatch):
    both = threading.Barrier(2)

    async def lease_two(pool):
        return await asyncio.gather(pool.lease(Layout(1), "t0001"), pool.lease(Layout(1), "t0002"))

    numbers = run_with_pool(monkeypatch, 2, False, lambda number: both.wait(timeout=10), lease_two)
    assert numbers == [1, 2]


def test_a_trial_hears_why_a_group_cannot_even_be_asked_for(monkeypatch):
    def fail(number):
        raise ConnectionError("the cluster did not answer")

    monkeypatch.setattr(group_module, "START_TIMEOUT_SECONDS", 2.0)
    with pytest.raises(GroupError, match="ConnectionError: the cluster did not answer"):
        run_with_pool(monkeypatch, 1, False, fail, lambda pool: pool.lease(Layout(1), "t0001"))


def test_a_group_that_starts_before_anybody_needs_it_is_leased_by_the_first_trial(monkeypatch):
    may_start = threading.Event()

    async def warm_and_lease(pool):
        await pool.warm(Layout(1))
        lease = asyncio.create_task(pool.lease(Layout(1), "t0001"))
        await asyncio.sleep(0.1)
        assert not lease.done()
        may_start.set()
        return await lease

    assert run_with_pool(monkeypatch, 2, False, lambda number: may_start.wait(timeout=10), warm_and_lease) == 1


def test_a_group_that_starts_may_not_have_claimed_its_cores_yet(monkeypatch):
    may_start, claimed = threading.Event(), []

    def start(number):
        may_start.wait(timeout=10)
        claimed.append(number)

    def has_free(nodes, layouts):
        return sum(layout.cpus_per_process for layout in layouts) <= 3 - 2 * len(claimed)

    async def lease_two(pool):
        first = asyncio.create_task(pool.lease(Layout(1, 2), "t0001"))
        second = asyncio.create_task(pool.lease(Layout(1, 2), "t0002"))
        await asyncio.sleep(0.5)
        assert len(pool._groups) == 1
        assert not second.done()  # it waits for the first group, not for others
        may_start.set()
        assert await first == 1
        with pytest.raises(BusyError, match="waits for 1 process with 2 cores"):
            await second

    monkeypatch.setattr(NodesOfOneKind, "live", lambda nodes: [])
    monkeypatch.setattr(pool_module, "has_free", has_free)
    monkeypatch.setattr(pool_module, "BUSY_AFTER_SECONDS", 0.2)
    run_with_pool(monkeypatch, 4, True, start, lease_two)


def test_the_end_of_a_lease_waits_for_a_group_that_memory_ends_as_it_ended_the_trials_actor(monkeypatch):
    async def lose(pool):
        number = await pool.lease(Layout(1), "t0001")
        end = asyncio.create_task(pool.end_lease("t0001"))
        await asyncio.sleep(0.1)
        await pool.call_group(number, "submit", None)
        return await end

    monkeypatch.setattr(ray, "kill", lambda worker: None)
    reason = "out of host memory: the worker of rank 0 died: the node is full"
    died = 0, ray.exceptions.OutOfMemoryError("the node is full")
    assert run_with_pool(monkeypatch, 1, False, lambda number: None, lose, died) == Ended("infeasible", reason)


def test_the_end_of_a_lease_that_is_not_granted_yet_withdraws_it(monkeypatch):
    async def lose(pool):
        first = await pool.lease(Layout(1), "t0001")
        gone = asyncio.create_task(pool.lease(Layout(1), "t0002"))
        await asyncio.sleep(0.1)
        assert await pool.end_lease("t0002") is None
        await pool.release(first)
        async with asyncio.timeout(5):
            assert await pool.lease(Layout(1), "t0003") == first
        assert gone.cancelled()

    run_with_pool(monkeypatch, 1, False, lambda number: None, lose)


def test_a_lease_that_is_withdrawn_while_its_group_starts_leaves_room_for_the_next(monkeypatch):
    may_start = threading.Event()

    async def lose(pool):
        gone = asyncio.create_task(pool.lease(Layout(1), "t0001"))
        await asyncio.sleep(0.1)
        end = asyncio.create_task(pool.end_lease("t0001"))
        await asyncio.sleep(0.1)
        assert gone.cancelled()
        may_start.set()
        await end
        async with asyncio.timeout(5):
            assert await pool.lease(Layout(1), "t0002") == 2

    monkeypatch.setattr(ray, "kill", lambda worker: None)
    monkeypatch.setattr(pool_module, "DEATH_SECONDS", 0.1)
    run_with_pool(monkeypatch, 1, False, lambda number: may_start.wait(timeout=10), lose)


def test_a_lease_that_is_withdrawn_while_it_makes_room_leaves_no_group_half_closed(monkeypatch):
    async def lose(pool):
        await pool.release(await pool.lease(Layout(1), "t0001"))
        idle = pool._groups[1]
        async with idle._changed:  # so that the ranks do not hear yet that the group closes
            gone = asyncio.create_task(pool.lease(Layout(1, 2), "t0002"))
            await asyncio.sleep(0.1)
            assert idle.closing
            await pool.end_lease("t0002")
            await asyncio.wait([gone], timeout=5)
        assert gone.cancelled()
        async with asyncio.timeout(5):
            assert await pool.lease(Layout(1, 2), "t0003") == 2

    monkeypatch.setattr(pool_module, "MAX_IDLE_GROUPS", 0)
    run_with_pool(monkeypatch, 2, False, lambda number: None, lose)


@pytest.mark.parametrize(("node", "lost", "state"), [("here", [], Ended), ("far", [], Died), ("here", ["here"], Died)])
def test_the_kernels_count_is_of_this_node_and_explains_no_death_on_another_or_a_lost_one(
    monkeypatch, node, lost, state
):
    async def bury():
        group = Group(1, Layout(1), 60.0, on_cluster=True)
        group.places[0], group._oom_kills[0] = Place(node, "10.0.0.2", 1), 5
        await group.bury(0, RuntimeError("the process is gone"))
        return await group.next_message()

    monkeypatch.setattr(group_module, "kernel_oom_kills", lambda: 6)
    monkeypatch.setattr(group_module, "lost_nodes", lambda node_ids: lost)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(get_node_id=lambda: "here"))
    assert isinstance(asyncio.run(bury()), state)


def pool_of_nodes(monkeypatch, live, timeout_seconds=0.4):
    """Pool of a cluster that had two nodes of four cores."""
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(current_actor=None))
    monkeypatch.setattr(NodesOfOneKind, "live", live)
    monkeypatch.setattr(pool_module, "draining_nodes", list)
    monkeypatch.setattr(pool_module, "BUSY_AFTER_SECONDS", 0.05)
    monkeypatch.setattr(pool_module, "NODES_POLL_SECONDS", 0.02)
    kind = NodesOfOneKind(kind=Kind("cpu", ()))
    return WorkerPool(Resources(8, 0, 2), kind, "", True, timeout_seconds, False)


def test_each_trial_waits_for_lost_nodes_anew(monkeypatch):
    async def main():
        pool = pool_of_nodes(monkeypatch, lambda nodes: [Node("a", Resources(4))])
        pool._take_in([Node("a", Resources(4))])
        now, waited = asyncio.get_running_loop().time, []
        for trial_id in ("t0001", "t0002"):
            since, refused = now(), None
            while refused is None:
                try:
                    await pool.lease(Layout(2, 4), trial_id)
                except BusyError:
                    continue
                except GroupError as error:
                    refused = str(error)
            assert "that the cluster still has" in refused
            waited.append(now() - since)
        pool._following_nodes.cancel()
        return waited

    assert min(asyncio.run(main())) >= 0.4


def test_a_question_about_nodes_that_fails_is_asked_again(monkeypatch):
    answers = iter([RuntimeError("no answer"), *([[Node("a", Resources(4))]] * 1000)])

    def live(nodes):
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def main():
        pool = pool_of_nodes(monkeypatch, live)
        following = asyncio.create_task(pool._follow_nodes())
        while pool._capacity.cpus != 4:
            assert not following.done()
            await asyncio.sleep(0.01)
        following.cancel()

    asyncio.run(main())


def test_a_trial_hears_of_the_end_of_its_processes_where_ray_does_not_say_which_nodes_are_lost(monkeypatch):
    def lost_nodes(nodes):
        raise RuntimeError("no answer")

    monkeypatch.setattr(group_module, "lost_nodes", lost_nodes)
    monkeypatch.setattr(
        ray, "get_runtime_context", lambda: SimpleNamespace(get_node_id=lambda: "here", current_actor=None)
    )

    async def main():
        group = Group(1, Layout(1), 1.0, True)
        await group.submit(None)
        await group.bury(0, RuntimeError("killed"))
        return await asyncio.wait_for(group.next_message(), 3)

    assert asyncio.run(main()) == Died("the worker of rank 0 died: killed", False)
