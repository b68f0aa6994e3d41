"""The Ray cluster of a run: started on this machine, or joined by its address."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil

import search
import trainables
from search.execution.ray_watchdog import END_TIMEOUT_SECONDS, RayLossCheck, end_children, watchdog
from search.execution.worker_environment import WORKER_ENVIRONMENT
from search.exit_codes import BAD_INPUT
from search.space.machine import Machine
from search.space.space import MOST_CONCURRENT_TRIALS
from search.text.errors import first_line
from trainables.contract import Resources

# Ray reads these when it is imported or when its processes start.
os.environ.update(
    {
        "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # the journal is the record
        "TUNE_DISABLE_SIGINT_HANDLER": "1",  # `search.run` handles signals: it ends at once and keeps everything
        "TUNE_GLOBAL_CHECKPOINT_S": "86400",  # Tune's snapshots are never read: the journal is
        "RAY_AIR_NEW_OUTPUT": "0",
        "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # Ray's messages go to its own logs, not across the live view
        "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # an interrupted run leaves calls of Tune unanswered
        "RAY_worker_niceness": "0",  # with Ray's 15 every other process of the machine goes before a trial
        "RAY_num_workers_soft_limit": "0",  # saves idle workers for tasks that never come
        "RAY_idle_worker_killing_time_threshold_ms": "10000",  # the start needs its workers for less than that
        "RAY_memory_monitor_refresh_ms": "0",  # Ray would kill the newest worker; the kernel kills the largest process
        "RAY_CHDIR_TO_TRIAL_DIR": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # Ray's future default; without it Ray warns
    }
    | os.environ
)

import ray  # after the settings above

from search.execution import ray_hooks
from search.execution.demand import NodeDemand
from search.execution.nodes import NodesError, NodesOfOneKind, choose_nodes, total

CONNECT_TIMEOUT_SECONDS = 5.0
ANSWER_TIMEOUT_SECONDS = 20.0
SETTINGS: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}


class ClusterError(Exception):
    """No cluster to run on; the message says why."""


@dataclass(frozen=True)
class Cluster:
    """Ray cluster of a run."""

    resources: Resources  # of the nodes that run trials
    machine: Machine  # the smallest of them
    owned: bool  # started for this run, and shared with nobody
    dashboard_url: str | None  # as Ray gives it, without http://
    why_lost: Callable[[], str | None] = lambda: None  # called every second; None: Ray is alive
    notices: Sequence[str] = ()  # what the run should print about this Ray
    nodes: NodesOfOneKind = field(default_factory=NodesOfOneKind)
    demand: NodeDemand = field(default_factory=NodeDemand)  # for more nodes

    def concurrent_trials(self, at_start: int) -> int:
        """Return how many trials may run at a time: as many as at the start for each of the nodes that there were.

        The demand for more nodes hears how many there are.
        """
        if self.owned:
            return at_start
        nodes = self.nodes.live()
        self.demand.update(nodes)
        return min(MOST_CONCURRENT_TRIALS, max(1, at_start * len(nodes) // self.machine.num_nodes))

    def resumed(self, there: Machine) -> Cluster:
        """Return the cluster as one with as many nodes as a run had at its start.

        Its trials keep their shares; the nodes of now decide how many run at a time.
        """
        if self.owned:
            return self
        number = there.num_nodes
        return replace(self, resources=self.resources.on(number), machine=replace(self.machine, num_nodes=number))


@contextmanager
def connect(
    address: str | None,
    machine: Machine,
    dashboard: bool,
    labels: Mapping[str, Sequence[str]] | None = None,
    wait_seconds: float = 0.0,
    wanted_nodes: int = 0,
    size: Resources | None = None,
) -> Iterator[Cluster]:
    """Join the cluster at `address`, or start one on this machine, for the time of a run.

    `labels`: those that the nodes of a joined cluster need to run trials, each with the values that will do.
    `wait_seconds`: for the first of them. `wanted_nodes`: to ask the cluster's autoscaler for. `size`: what a run
    that goes on has used of each node.

    Raises:
        ClusterError: nothing answers at `address`, Ray does not start, or there are no such nodes of one kind.
    """
    try:
        dashboard_url = _start(machine, dashboard) if address is None else _join(address)
    except Exception as error:  # a bare Exception where Ray is not up within 30 s
        where = f"at {address}" if address else "on this machine"
        raise ClusterError(f"no Ray cluster {where}: {first_line(error)}") from error
    try:
        try:
            labels, demand = labels or {}, NodeDemand(wanted_nodes, labels or {})
            ask = partial(demand.update, [])
            chosen = NodesOfOneKind() if address is None else choose_nodes(labels, wait_seconds, ask, size)
            nodes = chosen.live()
            if not nodes:
                raise NodesError("no node is left")
        except NodesError as error:
            raise ClusterError(f"the Ray cluster at {address}: {error}") from error
        machines = [chosen.machines.get(node.node_id, machine) for node in nodes]
        smallest = min(machines, key=lambda each: (len(each.gpus), each.cores, each.memory_gib))
        yield Cluster(
            resources=total(nodes),
            machine=replace(smallest, num_nodes=len(nodes)),
            owned=address is None,
            dashboard_url=dashboard_url,
            why_lost=_loss_check(owned=address is None),
            notices=ray_hooks.notices(),
            nodes=chosen,
            demand=demand,
        )
    finally:
        ray.shutdown()
        if address is None:
            end_children()  # a part of Ray may have died and left its children running


def _start(machine: Machine, dashboard: bool) -> str | None:
    """Start Ray on this machine, at the second attempt if need be; return the dashboard's address.

    Ray gives its parts fixed times to start, which a machine may be too busy for.
    """
    try:
        return _start_once(machine, dashboard)
    except Exception:
        end_children(END_TIMEOUT_SECONDS)  # parts of Ray that have started
        return _start_once(machine, dashboard)


def _start_once(machine: Machine, dashboard: bool) -> str | None:
    with patch.dict(os.environ, WORKER_ENVIRONMENT):
        context = ray_hooks.init_ray(
            address="local",  # also where another cluster runs on this machine, which Ray would join
            num_cpus=machine.cores,
            num_gpus=len(machine.gpus),
            include_dashboard=dashboard,
            dashboard_host="127.0.0.1",
            **SETTINGS,
        )
    url: str | None = context.dashboard_url
    return url


def _join(address: str) -> str | None:
    """Join the Ray at an address; return its dashboard's address."""
    host, colon, port = address.rpartition(":")
    if colon and not port.isdecimal():
        raise ValueError("expected HOST:PORT or auto")
    if colon:  # connect first: Ray itself retries for many minutes
        host = host.removeprefix("ray://").strip("[]")
        socket.create_connection((host, int(port)), CONNECT_TIMEOUT_SECONDS).close()
    packages = [str(Path(package.__file__ or "").parent) for package in (search, trainables)]
    why = f"no Ray cluster at {address}: no answer within {ANSWER_TIMEOUT_SECONDS:.0f} s"
    # something other than Ray may listen there: `ray.init` would wait, and ignore signals
    with watchdog(lambda: why, _exit, ANSWER_TIMEOUT_SECONDS):
        context = ray.init(address=address, runtime_env={"py_modules": packages}, **SETTINGS)
    url: str | None = context.dashboard_url
    return url


def _loss_check(owned: bool) -> RayLossCheck:
    """Return what tells that Ray is gone: by its processes where they are ours, else by its port."""
    if owned:
        children = {child.name(): child for child in psutil.Process().children()}
        return RayLossCheck({name: children[name] for name in ("raylet", "gcs_server") if name in children}, None)
    host, _, port = ray.get_runtime_context().gcs_address.rpartition(":")
    return RayLossCheck({}, (host.strip("[]"), int(port)))


def _exit(why: str) -> None:
    print(why, file=sys.stderr)
    os._exit(BAD_INPUT)
