"""Resources of the cluster's live nodes, and their description in messages."""

from __future__ import annotations

from collections.abc import Sequence

import ray

from search.text.numbers import plural
from trainables.contract import Layout, Resources


def live_nodes() -> list[Resources]:
    """Return the resources of each live node. Ray takes some ten seconds to find that a node is lost."""
    resources = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return [Resources(cpus=int(each.get("CPU", 0)), gpus=int(each.get("GPU", 0))) for each in resources]


def resources_of_largest_nodes(nodes: Sequence[Resources]) -> Resources:
    """Return the resources of all nodes that have as much as the largest one; other nodes run no trials.

    Otherwise a trial would wait for the smaller ones, such as a head without GPUs.
    """
    largest = max(nodes, key=lambda node: (node.gpus, node.cpus))
    number = sum(node.gpus >= largest.gpus and node.cpus >= largest.cpus for node in nodes)
    return Resources(number * largest.cpus, number * largest.gpus, number)


def describe_layout(layout: Layout) -> str:
    """Return e.g. `2 processes with 1 core and 1 GPU each`."""
    each = describe_resources(Resources(layout.cpus_per_process, layout.gpus_per_process))
    return f"{layout.processes} processes with {each} each" if layout.processes > 1 else f"1 process with {each}"


def describe_resources(resources: Resources) -> str:
    """Return e.g. `4 cores and 2 GPUs on 2 nodes`."""
    gpus = f" and {plural(resources.gpus, 'GPU')}" if resources.gpus else ""
    nodes = f" on {resources.nodes} nodes" if resources.nodes > 1 else ""
    return f"{plural(resources.cpus, 'core')}{gpus}{nodes}"
