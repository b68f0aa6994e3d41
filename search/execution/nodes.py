"""What the nodes of the cluster have that are there at the moment, and how that is said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import ray

from search.text.wording import count
from trainables.contract import Layout, Resources


def alive() -> list[Resources]:
    """Of each node; one that was lost counts from when Ray takes it for dead, which takes it some ten seconds."""
    return [_resources(node["Resources"]) for node in ray.nodes() if node["Alive"]]


def alike(nodes: Sequence[Resources]) -> Resources:
    """As many nodes as have what the largest has. Others, such as a head without GPUs, would only be waited for."""
    largest = max(nodes, key=lambda node: (node.gpus, node.cpus))
    number = sum(node.gpus >= largest.gpus and node.cpus >= largest.cpus for node in nodes)
    return Resources(number * largest.cpus, number * largest.gpus, number)


def needed(layout: Layout) -> str:
    """`2 processes with 1 core and 1 GPU each`."""
    each = offered(Resources(layout.cpus_per_process, layout.gpus_per_process))
    return f"{layout.processes} processes with {each} each" if layout.processes > 1 else f"1 process with {each}"


def offered(resources: Resources) -> str:
    """`4 cores and 2 GPUs on 2 nodes`."""
    gpus = f" and {count(resources.gpus, 'GPU')}" if resources.gpus else ""
    nodes = f" on {resources.nodes} nodes" if resources.nodes > 1 else ""
    return f"{count(resources.cpus, 'core')}{gpus}{nodes}"


def _resources(named: Mapping[str, float]) -> Resources:
    return Resources(cpus=int(named.get("CPU", 0)), gpus=int(named.get("GPU", 0)))
