"""Nodes that a search asks the autoscaler of a cluster for."""

from types import SimpleNamespace

import pytest

from search.execution import demand
from search.execution.demand import NodeDemand
from tests.search.test_nodes import node


@pytest.fixture
def groups(monkeypatch):
    """Placement groups that wait, each with its bundle and its label selector; `state` may be set."""
    waiting = []

    def create(bundles, bundle_label_selector=None):
        group = SimpleNamespace(bundles=bundles, selector=(bundle_label_selector or [{}])[0], state="PENDING")
        waiting.append(group)
        return group

    monkeypatch.setattr(demand, "placement_group", create)
    monkeypatch.setattr(demand, "remove_placement_group", waiting.remove)
    monkeypatch.setattr(demand, "placement_group_table", lambda group: {"state": group.state})
    return waiting


def test_before_the_first_node_one_with_the_labels_is_asked_for(groups):
    NodeDemand(2, {"ray.io/accelerator-type": ["H100", "H200"]}).update([])
    assert [group.bundles for group in groups] == [[{"GPU": 1.0}]]
    assert groups[0].selector == {"ray.io/accelerator-type": "in(H100,H200)"}
    groups.clear()
    NodeDemand(1, {}).update([])
    assert [(group.bundles, group.selector) for group in groups] == [([{"CPU": 1.0}], {})]


def test_what_is_missing_is_asked_for_in_the_size_of_the_nodes_there_are_and_elsewhere(groups):
    wanted = NodeDemand(3, {"role": ["train"]})
    wanted.update([node("a", 32, 8)])
    wanted.update([node("a", 32, 8)])
    assert [group.bundles for group in groups] == [[{"CPU": 32.0, "GPU": 8.0}]] * 2
    assert groups[0].selector == {"role": "in(train)", "ray.io/node-id": "!in(a)"}


def test_a_node_that_has_come_is_free_for_trials_and_less_is_asked_for(groups):
    wanted, nodes = NodeDemand(3, {}), [node("a", 32), node("b", 32), node("c", 32)]
    wanted.update(nodes[:1])
    groups[0].state = "CREATED"
    wanted.update(nodes[:1])  # Ray has placed it, and tells of the node later
    assert [group.state for group in groups] == ["PENDING"] * 2
    wanted.update(nodes[:2])
    assert [group.selector for group in groups] == [{"ray.io/node-id": "!in(a,b)"}]
    wanted.update(nodes)
    assert groups == []
    wanted.update([*nodes, node("d", 32)])
    assert groups == []


def test_after_the_search_nothing_is_asked_for(groups):
    wanted = NodeDemand(3, {})
    wanted.update([node("a", 32)])
    wanted.withdraw()
    assert groups == []
