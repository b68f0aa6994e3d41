"""The trainable `replay`, with trials that go wrong as they are told: `trainable: tests.faulty_replay`.

fail_at_epoch  the epoch that goes wrong (0: none), in the first process
fail_with      exception, infeasible, kill (SIGKILL of the process), hang, nan, memory (all that the process may have),
               hunger (all that the machine has, until the process is ended for it), child (starts one, then hangs) or
               silence (starts one, then returns without a word)
fail_once      true: only the first time in the trial's folder, so that a retry gets through
"""

from __future__ import annotations

import math
import os
import resource
import signal
import subprocess
import sys
import time

from trainables import replay
from trainables.contract import Config, Cost, Data, InfeasibleError, Worker
from trainables.replay import (  # noqa: F401
    METRICS,
    PARAMETERS,
    STRATEGIES,
    describe_data,
    explain,
    largest_batch,
    layout,
    locate_data,
    memory,
    test,
    unavailable,
)

FAULTS = ("fail_at_epoch", "fail_with", "fail_once")
MEMORY_LIMIT = 2**36  # more than a process here has addresses in use


class SilentError(Exception):
    """The trial returns without a word."""


def plain(config: Config) -> Config:
    return {name: value for name, value in config.items() if name not in FAULTS}


def train(config: Config, worker: Worker) -> None:
    def curve(settings: Config, epoch: int) -> replay.Metrics:
        metrics = replay.curve(settings, epoch)
        if not goes_wrong(config, epoch, worker):
            return metrics
        time.sleep(float(config.get("seconds_per_epoch", 0.0)))
        return fail(config, epoch, metrics)

    try:
        replay.train(plain(config), worker, curve)
    except SilentError:
        start_a_child()


def probe(config: Config, worker: Worker) -> None:
    replay.probe(plain(config), worker)


def estimate(config: Config, data: Data) -> Cost:
    return replay.estimate(plain(config), data)


def goes_wrong(config: Config, epoch: int, worker: Worker) -> bool:
    if worker.rank != 0 or epoch != config.get("fail_at_epoch", 0):
        return False
    marker = worker.folder / "failed_once"
    if config.get("fail_once", False) and marker.exists():
        return False
    marker.touch()
    return True


def fail(config: Config, epoch: int, metrics: replay.Metrics) -> replay.Metrics:
    """What `fail_with` says; only `nan` lets the epoch end."""
    match config.get("fail_with", "exception"):
        case "infeasible":
            raise InfeasibleError(f"epoch {epoch} was to be infeasible")
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hang":
            time.sleep(1e6)
        case "child":
            start_a_child()
            time.sleep(1e6)
        case "silence":
            raise SilentError
        case "memory":
            take_all_memory()
        case "hunger":
            eat_memory()
        case "nan":
            return dict.fromkeys(metrics, math.nan)
    raise RuntimeError(f"epoch {epoch} was to fail")


def start_a_child() -> None:
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1e6)"])


def take_all_memory() -> None:
    """By a limit on this process's addresses, lifted again afterwards."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, before[1]))
    try:
        bytearray(2 * MEMORY_LIMIT)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def eat_memory() -> None:
    """Without a limit of its own, 64 MiB at a time, each used, so that somebody has time to object."""
    eaten = []
    while True:
        eaten.append(b"x" * 2**26)
        time.sleep(0.05)
