"""The Ray cluster of a run: started on this machine, or joined by its address."""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

import search
import trainables
from search.execution.watch import Lost, end_children, in_own_group
from search.outcome import BAD_INPUT
from trainables.contract import Resources

# Ray reads these when it is imported or when its processes start.
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")  # the journal is the record
os.environ.setdefault("TUNE_DISABLE_SIGINT_HANDLER", "1")  # `search.run` ends a run, at once and with everything kept
os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "86400")  # its own snapshots are never read: the journal is
os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")  # what Ray has to say is in its own logs, not across our view
os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "1")  # a dead worker is noticed within about a second
os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")  # an interrupted run leaves calls of Tune without an answer
os.environ.setdefault("RAY_worker_niceness", "0")  # at Ray's 15 a trial gives way to all else on the machine
os.environ.setdefault("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "0")  # a process less that wakes 100 times a second
os.environ.setdefault("RAY_num_workers_soft_limit", "0")  # likewise: of workers that wait for work that never comes
os.environ.setdefault("RAY_idle_worker_killing_time_threshold_ms", "10000")  # those of the start are all needed by then
os.environ.setdefault("RAY_memory_monitor_refresh_ms", "0")  # it ends who came last; the kernel, who has the most
os.environ.setdefault("RAY_CHDIR_TO_TRIAL_DIR", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # what Ray will do by itself; it warns until then

import ray  # after the settings above

from search.execution.nodes import alike, alive

CONNECT_TIMEOUT_SECONDS = 5.0
ANSWER_TIMEOUT_SECONDS = 20.0


class ClusterError(Exception):
    """No cluster to run on; the message says why."""


@dataclass(frozen=True)
class Cluster:
    """What a run has to work with."""

    resources: Resources  # of the nodes that are as large as the largest: trials run on these
    num_nodes: int
    ours: bool  # started for this run, and shared with nobody
    dashboard_url: str | None
    why_lost: Callable[[], str | None] = lambda: None  # asked now and then; None: it is there


@contextmanager
def connect(address: str | None, machine: Resources, dashboard: bool) -> Iterator[Cluster]:
    """A cluster for the time of a run: the one at `address`, or else one of its own on this machine.

    Raises:
        ClusterError: nothing answers at `address`, or Ray does not start.
    """
    settings = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        _reach(address)
        if address is None:
            context = _started(machine, dashboard, settings)
        else:
            packages = [str(Path(package.__file__ or "").parent) for package in (search, trainables)]
            with _given_up_on(address):
                context = ray.init(address=address, runtime_env={"py_modules": packages}, **settings)
    except Exception as error:  # as bare as this where Ray is not up within 30 s
        where = f"at {address}" if address else "on this machine"
        raise ClusterError(f"no Ray cluster {where}: {str(error).splitlines()[0]}") from error
    try:
        nodes = alive()
        url = context.dashboard_url
        yield Cluster(
            resources=alike(nodes),
            num_nodes=len(nodes),
            ours=address is None,
            dashboard_url=f"http://{url}" if url else None,
            why_lost=_lost(ours=address is None),
        )
    finally:
        ray.shutdown()
        if address is None:
            end_children()  # where a part of Ray was gone, what nobody looked after


def _lost(ours: bool) -> Lost:
    if ours:
        children = {child.name(): child for child in psutil.Process().children()}
        return Lost({name: children[name] for name in ("raylet", "gcs_server") if name in children}, None)
    host, _, port = ray.get_runtime_context().gcs_address.rpartition(":")
    return Lost({}, (host.strip("[]"), int(port)))


def _started(machine: Resources, dashboard: bool, settings: dict[str, Any]) -> Any:
    """A cluster of our own. Ray has no option for four things.

    Its processes would listen on all addresses of the machine (by a constant that is meant for other systems, see
    `get_node_ip_address` in ray/_private/services.py), one would read all logs for a driver that asked for none,
    a signal to all of a terminal would end them (half of Ray, for which the other half waits), and SIGTERM would be
    Ray's while it starts.
    """
    services = ray._private.services
    with (
        _changed(ray._private.ray_constants, "ENABLE_RAY_CLUSTER", False),
        _changed(ray._private.node.Node, "start_log_monitor", lambda node: None),
        _changed(services, "ConsolePopen", in_own_group(services.ConsolePopen)),
        _changed(ray._private.utils, "set_sigterm_handler", lambda handler: None),
    ):
        return ray.init(
            address="local",  # also where another cluster runs on this machine, which Ray would join
            num_cpus=machine.cpus,
            num_gpus=machine.gpus,
            include_dashboard=dashboard,
            dashboard_host="127.0.0.1",
            **settings,
        )


@contextmanager
def _changed(owner: object, name: str, value: object) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def _given_up_on(address: str) -> Iterator[None]:
    """End the process if something else than Ray listens there: Ray waits for its answer, and hears nothing else."""

    def give_up() -> None:
        print(f"no Ray cluster at {address}: no answer within {ANSWER_TIMEOUT_SECONDS:.0f} s", file=sys.stderr)
        os._exit(BAD_INPUT)

    timer = threading.Timer(ANSWER_TIMEOUT_SECONDS, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _reach(address: str | None) -> None:
    """Knock at a `host:port`, since Ray itself goes on trying for many minutes.

    Raises:
        OSError, ValueError: nobody is there.
    """
    host, colon, port = (address or "").rpartition(":")
    if colon:
        socket.create_connection((host.removeprefix("ray://").strip("[]"), int(port)), CONNECT_TIMEOUT_SECONDS).close()
