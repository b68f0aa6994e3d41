"""Which nodes of a cluster run trials."""

import socket
from dataclasses import replace
from types import SimpleNamespace

import pytest
import ray

from search.execution import nodes
from search.execution.cluster import Cluster, ClusterError, connect
from search.execution.nodes import Node, NodesError, choose_nodes, has_free, of_one_size, total
from search.space.machine import Gpu, Machine
from trainables.contract import Layout, Resources

H100, A100 = Gpu("H100", 80.0), Gpu("A100", 80.0)


def node(name, cpus, gpus=0, **labels):
    return Node(name, Resources(cpus, gpus), {"ray.io/node-id": name, **labels})


@pytest.fixture
def cluster(monkeypatch):
    """Return what makes a cluster of pairs of a node and its machine."""

    def make(*pairs):
        machines = {each.node_id: machine for each, machine in pairs}
        monkeypatch.setattr(nodes, "live_nodes", lambda: [each for each, _ in pairs])

        def describe(self, asked, *_):
            self.machines.update({each.node_id: machines[each.node_id] for each in asked})

        monkeypatch.setattr(nodes.NodesOfOneKind, "describe", describe)

    return make


def test_nodes_that_come_later_are_waited_for(cluster, monkeypatch):
    machine = Machine("EPYC", cores=32, memory_gib=200, gpus=(H100,))
    late = node("b", 32, 1, kind="H100")
    cluster((late, machine))
    seen = iter([[], [node("a", 4)], [node("a", 4), late]])
    monkeypatch.setattr(nodes, "live_nodes", lambda: next(seen))
    monkeypatch.setattr(nodes, "NODES_POLL_SECONDS", 0.01)
    assert choose_nodes({"kind": ["H100"]}, wait_seconds=20).kind is not None
    with pytest.raises(StopIteration):
        next(seen)
    monkeypatch.setattr(nodes, "live_nodes", lambda: [node("a", 4)])
    with pytest.raises(NodesError, match="no node has kind=H100"):
        choose_nodes({"kind": ["H100"]}, wait_seconds=0.05)


def test_more_nodes_run_more_trials_at_a_time_and_fewer_run_fewer(cluster):
    machine = Machine("EPYC", cores=32, memory_gib=200, gpus=(H100,))
    pairs = [(node(name, 32, 1), machine) for name in "abcd"]
    cluster(*pairs[:2])
    joined = Cluster(Resources(64, 2, 2), replace(machine, num_nodes=2), False, None, nodes=choose_nodes({}))
    assert [joined.concurrent_trials(number) for number in (1, 3)] == [1, 3]
    cluster(*pairs)
    assert [joined.concurrent_trials(number) for number in (1, 3)] == [2, 6]
    cluster(*pairs[:1])
    assert [joined.concurrent_trials(number) for number in (1, 3)] == [1, 1]
    assert replace(joined, owned=True).concurrent_trials(3) == 3


def test_a_run_goes_on_with_the_share_of_each_trial_and_more_or_fewer_trials_at_a_time(cluster):
    machine = Machine("EPYC", cores=32, memory_gib=200, gpus=(H100,))
    cluster(*[(node(name, 32, 1), machine) for name in "abcd"])
    now = Cluster(Resources(128, 4, 4), replace(machine, num_nodes=4), False, None, nodes=choose_nodes({}))
    resumed = now.resumed(replace(machine, num_nodes=2))
    assert (resumed.resources, resumed.machine.num_nodes) == (Resources(64, 2, 2), 2)
    assert resumed.concurrent_trials(2) == 4
    alone = replace(now, owned=True)
    assert alone.resumed(machine) is alone


def test_a_node_that_does_not_answer_or_will_be_taken_away_is_lost(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as raylet, socket.create_server(("127.0.0.1", 0)) as other:
        here = {"Alive": True, "NodeManagerAddress": "127.0.0.1", "Resources": {"CPU": 2.0}}
        known = [
            {**here, "NodeID": "fine", "NodeManagerPort": raylet.getsockname()[1]},
            {**here, "NodeID": "silent", "NodeManagerPort": other.getsockname()[1]},
            {**here, "NodeID": "drains", "NodeManagerPort": raylet.getsockname()[1]},
            {**here, "NodeID": "dead", "NodeManagerPort": raylet.getsockname()[1], "Alive": False},
        ]
        other.close()
        monkeypatch.setattr("search.execution.nodes.ray.nodes", lambda: known)
        monkeypatch.setattr("search.execution.nodes.state.get_draining_nodes", lambda: {"drains": 0})
        found = nodes.lost_nodes(["fine", "silent", "drains", "dead", "unknown"])
    assert found == ["silent", "drains", "dead", "unknown"]
    assert [each.node_id for each in nodes.live_nodes()] == ["fine", "silent"]


def test_a_layout_has_room_where_whole_processes_fit_on_nodes(monkeypatch):
    free = {"a": {"CPU": 3.0, "GPU": 1.0}, "b": {"CPU": 2.0, "GPU": 4.0}, "c": {"CPU": 64.0, "GPU": 8.0}}
    monkeypatch.setattr(nodes, "available_resources_per_node", lambda: free)
    mine = [node("a", 8, 4), node("b", 8, 4)]
    assert has_free(mine, [Layout(3, cpus_per_process=1, gpus_per_process=1)])
    assert not has_free(mine, [Layout(4, cpus_per_process=1, gpus_per_process=1)])
    assert has_free(mine, [Layout(2, cpus_per_process=2)])
    assert has_free(mine, [Layout(1, cpus_per_process=2), Layout(1, cpus_per_process=2), Layout(1)])
    assert not has_free(mine, [Layout(1, cpus_per_process=2), Layout(2, cpus_per_process=2)])
    assert not has_free(mine, [Layout(1, cpus_per_process=4)])
    assert not has_free([node("gone", 8)], [Layout(1)])


def test_smaller_nodes_run_no_trials_and_a_larger_one_as_much_as_the_others():
    head, large, larger = node("a", 16), node("b", 32, 8), node("c", 33, 8)
    assert of_one_size([head]) == [head]
    assert of_one_size([head, large, large]) == [large, large]
    assert of_one_size([head, large, larger]) == [large, larger]
    assert total([large, larger]) == Resources(64, 16, 2)
    assert total([large, larger]).node == Resources(32, 8)
    assert of_one_size([node("a", 2), node("b", 64), node("c", 64)])[0].node_id == "b"
    assert of_one_size([]) == []


def test_of_several_kinds_the_user_chooses(cluster):
    pairs = [
        (node("head", 4), Machine("Epyc", 4, 16)),
        (node("a", 32, 8, zone="x", **{"ray.io/accelerator-type": "A100"}), Machine("Epyc", 32, 64, gpus=(A100,) * 8)),
        (node("b", 32, 8, zone="x", **{"ray.io/accelerator-type": "H100"}), Machine("Epyc", 32, 64, gpus=(H100,) * 8)),
        (node("c", 33, 8, zone="y", **{"ray.io/accelerator-type": "H100"}), Machine("Epyc", 33, 64, gpus=(H100,) * 8)),
    ]
    cluster(*pairs)
    with pytest.raises(NodesError) as refusal:
        choose_nodes({})
    assert str(refusal.value) == (
        "nodes of 2 kinds: 1 of Epyc with A100 (80 GiB) (ray.io/accelerator-type=A100); 2 of Epyc with H100 (80 GiB) "
        "(ray.io/accelerator-type=H100); choose one with --nodes LABEL=VALUE"
    )
    chosen = choose_nodes({"ray.io/accelerator-type": ["H100"]})
    assert [each.node_id for each in chosen.live()] == ["b", "c"]
    with pytest.raises(NodesError, match="no node has zone=z; there are zone=x, zone=y"):
        choose_nodes({"zone": ["z"]})


def test_a_node_of_another_kind_that_joins_later_runs_no_trials(cluster):
    first = (node("a", 8), Machine("Epyc", 8, 16))
    cluster(first)
    chosen = choose_nodes({})
    cluster(first, (node("b", 8), Machine("Xeon", 8, 16)), (node("c", 8), Machine("Epyc", 8, 16)))
    assert [each.node_id for each in chosen.live()] == ["a", "c"]


@pytest.mark.parametrize(("cores", "gpus"), [(32, 0), (8, 8)])
def test_a_larger_node_that_joins_is_used_as_far_as_those_at_the_start(cluster, cores, gpus):
    first, kind = (node("a", 8, int(gpus > 0)), Machine("Epyc", 8, 16, gpus=(H100,) * (gpus > 0))), (H100,) * gpus
    cluster(first)
    chosen = choose_nodes({})
    larger, smaller = ((node(name, n, gpus), Machine("Epyc", n, 16, gpus=kind)) for name, n in (("b", cores), ("c", 4)))
    cluster(first, larger, smaller)
    assert [each.node_id for each in chosen.live()] == ["a", "b"]
    assert total(chosen.live()) == total([first[0]]).on(2)
    again = choose_nodes({}, size=first[1].resources)  # on a resume
    assert again.live() == chosen.live()
    cluster(larger)
    assert total(choose_nodes({}, size=Resources(64)).live()) == total([larger[0]])  # there are none of that size


def test_a_new_node_runs_trials_when_it_has_said_what_it_is(monkeypatch):
    a, b, c = (node(letter * 56, 8) for letter in "abc")  # as long as Ray's
    answers = dict.fromkeys((a.node_id, c.node_id), Machine("Epyc", 8, 16))

    def get(answer, timeout):
        if isinstance(found := answers.get(answer), Exception):
            raise found
        return found

    def remote(**options):
        return lambda function: SimpleNamespace(remote=lambda: options["scheduling_strategy"].node_id)

    fake = SimpleNamespace(remote=remote, wait=lambda *_, **__: None, get=get, exceptions=ray.exceptions)
    monkeypatch.setattr(nodes, "ray", fake)
    monkeypatch.setattr(nodes, "live_nodes", lambda: [a])
    chosen = choose_nodes({})
    monkeypatch.setattr(nodes, "live_nodes", lambda: [a, b, c])
    for error in ray.exceptions.GetTimeoutError("later"), ray.exceptions.TaskUnschedulableError("its node left"):
        answers[b.node_id] = error
        assert chosen.live() == [a, c]
        with pytest.raises(NodesError, match="a node does not say what it is: "):
            choose_nodes({})
    answers[b.node_id] = Machine("Epyc", 8, 16)
    assert chosen.live() == [a, b, c]


@pytest.fixture
def joining(monkeypatch):
    """Return what joins a cluster of the nodes that are given."""
    monkeypatch.setattr("search.execution.cluster._join", lambda address: None)
    monkeypatch.setattr("search.execution.cluster._loss_check", lambda owned: None)

    def join(cluster, *pairs):
        cluster(*pairs)
        with connect("auto", Machine("Epyc", 4, 16), dashboard=False) as joined:
            return joined

    return join


def test_the_machine_of_a_cluster_is_its_smallest_node_in_whatever_order_ray_lists_them(cluster, joining):
    pairs = [(node(name, cores), Machine("Epyc", cores, 4 * cores)) for name, cores in (("a", 6), ("b", 8))]
    for order in pairs, pairs[::-1]:
        assert joining(cluster, *order).machine == Machine("Epyc", 6, 24, num_nodes=2)


def test_a_cluster_whose_last_node_leaves_while_a_run_starts_is_refused(cluster, joining, monkeypatch):
    monkeypatch.setattr(nodes.NodesOfOneKind, "live", lambda self: [])
    with pytest.raises(ClusterError, match="the Ray cluster at auto: no node is left"):
        joining(cluster, (node("a", 8), Machine("Epyc", 8, 16)))


def test_processors_are_kinds_too(cluster):
    cluster((node("a", 8), Machine("Epyc", 8, 16)), (node("b", 8), Machine("Xeon", 8, 16)))
    with pytest.raises(NodesError, match=r"1 of Epyc without a GPU \(ray.io/node-id=a\); 1 of Xeon"):
        choose_nodes({})
