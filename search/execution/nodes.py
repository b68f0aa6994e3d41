"""Nodes of the cluster that run trials, what kind of machine they are, and their description in messages."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import ray
import ray.exceptions
from ray._private.state import available_resources_per_node, state
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from search.space.machine import Gpu, Machine, describe_machine
from search.text.errors import first_line
from search.text.numbers import plural
from trainables.contract import Layout, Resources

DESCRIBE_TIMEOUT_SECONDS = 60.0
NODES_POLL_SECONDS = 1.0
ANSWER_TIMEOUT_SECONDS = 2.0  # of a raylet
NODE_ID = "ray.io/node-id"
ACCELERATOR = "ray.io/accelerator-type"


class NodesError(Exception):
    """No nodes to run on, or nodes of several kinds; the message is one line."""


@dataclass(frozen=True)
class Node:
    """Live node of the cluster, with the resources that Ray knows."""

    node_id: str
    resources: Resources
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Kind:
    """Processor and types of GPU of a node; on nodes of one kind the same configuration has the same rate."""

    cpu_name: str
    gpus: tuple[Gpu, ...]  # the different ones

    def __str__(self) -> str:
        gpus = " and ".join(map(str, self.gpus))
        return f"{self.cpu_name} with {gpus}" if gpus else f"{self.cpu_name} without a GPU"


@dataclass
class NodesOfOneKind:
    """Nodes that may run trials: of one kind, with one of the wanted values for each of the `labels`.

    `kind` None: the cluster is this machine alone, and nothing is asked. `wait_seconds`: how long trials wait for nodes
    that the cluster has lost. `size`: what of each node is used, as at the start; nodes with less run no trials.
    """

    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    kind: Kind | None = None
    machines: dict[str, Machine] = field(default_factory=dict)  # by node; each is asked once
    wait_seconds: float = 0.0
    size: Resources | None = None
    _answers: dict[str, ray.ObjectRef] = field(default_factory=dict, init=False)  # by node: those to come

    def live(self) -> list[Node]:
        """Return the live ones, with what of each is used, without new ones that have not said yet what they are.

        Ray takes some ten seconds to find that a node is lost.
        """
        nodes = [node for node in live_nodes() if has_labels(node, self.labels)]
        if self.kind is not None:
            with contextlib.suppress(NodesError):
                self.describe(nodes, 0.0)
            known = [node for node in nodes if node.node_id in self.machines]
            nodes = [node for node in known if kind_of(self.machines[node.node_id]) == self.kind]
        if self.size is None:
            return of_one_size(nodes)
        return [replace(node, resources=self.size) for node in nodes if has_at_least(node, self.size)]

    def describe(self, nodes: Iterable[Node], timeout_seconds: float = DESCRIBE_TIMEOUT_SECONDS) -> None:
        """Ask the nodes that were not asked yet what they are; note what those say that answer in time.

        Raises:
            NodesError: one of them does not answer.
        """
        asked = [(node, self._ask(node)) for node in nodes if node.node_id not in self.machines]
        silent: Exception | None = None
        if asked:
            ray.wait([answer for _, answer in asked], num_returns=len(asked), timeout=timeout_seconds)
        for node, answer in asked:
            try:
                self.machines[node.node_id] = _as_ray_has_it(ray.get(answer, timeout=0), node)
            except TimeoutError as error:
                silent = error
                continue  # it may answer later
            except ray.exceptions.RayError as error:
                silent = error
            self._answers.pop(node.node_id, None)
        if silent is not None:
            raise NodesError(f"a node does not say what it is: {first_line(silent)}") from silent

    def _ask(self, node: Node) -> ray.ObjectRef:
        answer = self._answers.get(node.node_id)
        if answer is None:
            on_node = NodeAffinitySchedulingStrategy(node.node_id, soft=False)
            answer = ray.remote(num_cpus=0, scheduling_strategy=on_node)(_describe).remote()
            self._answers[node.node_id] = answer
        return answer


def choose_nodes(
    labels: Mapping[str, Sequence[str]],
    wait_seconds: float = 0.0,
    on_none: Callable[[], None] = lambda: None,
    size: Resources | None = None,
) -> NodesOfOneKind:
    """Return the nodes with these labels: those with GPUs, if there are any. Wait so long for the first of them.

    `on_none` is called while there is none. `size`: of the nodes of a run that goes on, if there are such nodes.

    Raises:
        NodesError: there are none, or they are of several kinds, whose rates could not be compared.
    """
    deadline = time.monotonic() + wait_seconds
    while True:
        every = live_nodes()
        nodes = [node for node in every if has_labels(node, labels)]
        if nodes or time.monotonic() >= deadline:
            break
        on_none()
        time.sleep(NODES_POLL_SECONDS)
    if not nodes:
        known = sorted({f"{key}={node.labels[key]}" for node in every for key in labels if key in node.labels})
        said = ", ".join(f"{key}={value}" for key, values in labels.items() for value in values)
        raise NodesError(f"no node has {said}; there are {', '.join(known) or 'no such labels'}")
    nodes = [node for node in nodes if node.resources.gpus] or nodes
    chosen = NodesOfOneKind(labels, wait_seconds=wait_seconds)
    chosen.describe(nodes)
    kinds = {kind_of(chosen.machines[node.node_id]): node for node in nodes}
    if len(kinds) > 1:
        described = "; ".join(_kind_and_labels(kind, nodes, chosen.machines) for kind in sorted(kinds, key=str))
        raise NodesError(f"nodes of {len(kinds)} kinds: {described}; choose one with --nodes LABEL=VALUE")
    chosen.kind = next(iter(kinds))
    is_there = size is not None and any(has_at_least(node, size) for node in nodes)
    chosen.size = size if is_there else total(of_one_size(nodes)).node
    return chosen


def live_nodes() -> list[Node]:
    """Return all live nodes but those that will soon be taken away."""
    found, draining = [], draining_nodes()
    for node in ray.nodes():
        if node["Alive"] and node["NodeID"] not in draining:
            cpus, gpus = (int(node["Resources"].get(name, 0)) for name in ("CPU", "GPU"))
            found.append(Node(node["NodeID"], Resources(cpus=cpus, gpus=gpus), node.get("Labels") or {}))
    return found


def draining_nodes() -> Collection[str]:
    """Return the nodes that will soon be taken away, by a preemption or because the cluster shrinks."""
    draining: Mapping[str, int] = state.get_draining_nodes()
    return draining.keys()


def lost_nodes(node_ids: Iterable[str]) -> list[str]:
    """Return those of the nodes that are gone or will soon be taken away.

    Ray takes some ten seconds to find that a node is gone; one whose raylet does not answer is.
    """
    nodes, draining = {node["NodeID"]: node for node in ray.nodes()}, draining_nodes()
    return [
        node_id
        for node_id in node_ids
        if node_id in draining or not (node := nodes.get(node_id)) or not node["Alive"] or not _answers(node)
    ]


def _answers(node: Mapping[str, Any]) -> bool:
    with contextlib.suppress(OSError):
        address = node["NodeManagerAddress"], int(node["NodeManagerPort"])
        socket.create_connection(address, ANSWER_TIMEOUT_SECONDS).close()
        return True
    return False


def has_labels(node: Node, labels: Mapping[str, Sequence[str]]) -> bool:
    """Return whether the node has one of the wanted values for each label."""
    return all(node.labels.get(key) in values for key, values in labels.items())


def has_at_least(node: Node, size: Resources) -> bool:
    """Return whether the node has as many cores and GPUs."""
    return node.resources.cpus >= size.cpus and node.resources.gpus >= size.gpus


def kind_of(machine: Machine) -> Kind:
    """Return the kind of a machine."""
    return Kind(machine.cpu_name, tuple(dict.fromkeys(machine.gpus)))


def of_one_size(nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes that together have most, if each is used as far as the smallest of them is.

    Smaller ones, such as a head without GPUs, run no trials: a trial would wait for what they do not have.
    """
    sizes = {(node.resources.gpus, node.resources.cpus) for node in nodes}
    choices = [[node for node in nodes if has_at_least(node, Resources(cpus, gpus))] for gpus, cpus in sizes]
    return max(choices, key=lambda chosen: (total(chosen).gpus, total(chosen).cpus), default=[])


def total(nodes: Sequence[Node]) -> Resources:
    """Return the resources of all these nodes, each used as far as the smallest is."""
    if not nodes:
        return Resources(cpus=0)
    cpus, gpus = (min(getattr(node.resources, name) for node in nodes) for name in ("cpus", "gpus"))
    return Resources(cpus, gpus).on(len(nodes))


def has_free(nodes: Iterable[Node], layouts: Iterable[Layout]) -> bool:
    """Return whether nothing else in the cluster uses what the processes of these layouts need on these nodes."""
    available: Mapping[str, Mapping[str, float]] = available_resources_per_node()
    free = [dict(available.get(node.node_id, {})) for node in nodes]
    for layout in layouts:
        each = {name: n for name, n in (("CPU", layout.cpus_per_process), ("GPU", layout.gpus_per_process)) if n}
        for _ in range(layout.processes):
            node = next((left for left in free if all(left.get(name, 0) >= n for name, n in each.items())), None)
            if node is None:
                return False
            for name, n in each.items():
                node[name] -= n
    return True


def describe_layout(layout: Layout) -> str:
    """Return e.g. `2 processes with 1 core and 1 GPU each`."""
    each = describe_resources(Resources(layout.cpus_per_process, layout.gpus_per_process))
    return f"{layout.processes} processes with {each} each" if layout.processes > 1 else f"1 process with {each}"


def describe_resources(resources: Resources) -> str:
    """Return e.g. `4 cores and 2 GPUs on 2 nodes`."""
    gpus = f" and {plural(resources.gpus, 'GPU')}" if resources.gpus else ""
    nodes = f" on {resources.nodes} nodes" if resources.nodes > 1 else ""
    return f"{plural(resources.cpus, 'core')}{gpus}{nodes}"


def _describe() -> Machine:
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # Ray hides all GPUs from a task that asks for none
    return describe_machine()


def _as_ray_has_it(machine: Machine, node: Node) -> Machine:
    """Return the machine with as many cores and GPUs as Ray gives away there."""
    unknown = Gpu(node.labels.get(ACCELERATOR, "GPU"), 0.0)  # where the driver does not tell
    gpus = (*machine.gpus, *[unknown] * node.resources.gpus)[: node.resources.gpus]
    return replace(machine, cores=max(1, node.resources.cpus), gpus=gpus)


def _kind_and_labels(kind: Kind, nodes: Sequence[Node], machines: Mapping[str, Machine]) -> str:
    """Return the kind with the number of its nodes and the labels that no other kind has."""
    own = [node for node in nodes if kind_of(machines[node.node_id]) == kind]
    others = [node for node in nodes if kind_of(machines[node.node_id]) != kind]
    shared = {item for item in own[0].labels.items() if all(item in node.labels.items() for node in own)}
    telling = {item for item in shared if not any(item in node.labels.items() for node in others)} or {
        (NODE_ID, node.node_id) for node in own
    }
    labels = sorted(f"{key}={value}" for key, value in telling if key != NODE_ID or len(telling) == len(own))
    return f"{len(own)} of {kind} ({', '.join(labels[:2])})"
