"""What the nodes of the cluster have that are there at the moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import ray

from trainables.contract import Resources


def alive() -> list[Resources]:
    """Of each node; one that was lost counts from when Ray takes it for dead, which takes it some ten seconds."""
    return [_resources(node["Resources"]) for node in ray.nodes() if node["Alive"]]


def alike(nodes: Sequence[Resources]) -> Resources:
    """As many nodes as have what the largest has. Others, such as a head without GPUs, would only be waited for."""
    largest = max(nodes, key=lambda node: (node.gpus, node.cpus))
    number = sum(node.gpus >= largest.gpus and node.cpus >= largest.cpus for node in nodes)
    return Resources(number * largest.cpus, number * largest.gpus, number)


def _resources(named: Mapping[str, float]) -> Resources:
    return Resources(cpus=int(named.get("CPU", 0)), gpus=int(named.get("GPU", 0)))
