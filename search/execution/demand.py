"""Demand for more nodes: placement groups that wait for nodes the cluster lacks, which its autoscaler then adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table, remove_placement_group

from search.execution.nodes import ACCELERATOR, NODE_ID, Node, total


class NodeDemand:
    """Demand for `wanted` nodes with these labels; 0: none. It ends with this process, also where that is killed."""

    def __init__(self, wanted: int = 0, labels: Mapping[str, Sequence[str]] = MappingProxyType({})) -> None:
        self._wanted = wanted
        self._selector = {key: f"in({','.join(values)})" for key, values in labels.items()}
        self._first = {"GPU" if ACCELERATOR in labels else "CPU": 1.0}  # where the size of a node is not known
        self._waiting: list[PlacementGroup] = []
        self._live: frozenset[str] = frozenset()  # when the groups were created

    def update(self, live: Sequence[Node]) -> None:
        """Ask for as many nodes as are missing beside those that are live; they must be of the size of these.

        A group that was placed has brought its node, and is removed, so that trials find the node free.
        """
        # one at first: the nodes at the start of a run decide what share of them each trial has
        missing = self._wanted - len(live) if live else min(1, self._wanted)
        node_ids = frozenset(node.node_id for node in live)
        if node_ids != self._live or any(_is_placed(group) for group in self._waiting):
            self.withdraw()
        self._live = node_ids
        if len(self._waiting) >= max(missing, 0):
            return
        node = total(live).node
        sizes = {name: float(size) for name, size in (("CPU", node.cpus), ("GPU", node.gpus)) if size}
        elsewhere = {NODE_ID: f"!in({','.join(sorted(node_ids))})"} if node_ids else {}
        for _ in range(missing - len(self._waiting)):
            selector = {**self._selector, **elsewhere}
            group = placement_group([sizes or self._first], bundle_label_selector=[selector] if selector else None)
            self._waiting.append(group)

    def withdraw(self) -> None:
        """Ask for no nodes."""
        while self._waiting:
            remove_placement_group(self._waiting.pop())


def _is_placed(group: PlacementGroup) -> bool:
    return bool(placement_group_table(group)["state"] == "CREATED")
