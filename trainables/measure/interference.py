"""Interference: CPU time that others take from a trial's cores (processes, the hypervisor, a quota, a hot GPU)."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import time
from collections.abc import Collection

import torch

from trainables.machine.nvml import Gpu
from trainables.process_limits import CGROUPS, PROC, control_groups, counter

# Time for which a control group was throttled, by its controller: name of the line in `cpu.stat`, unit in seconds.
QUOTAS = {"": ("throttled_usec", 1e-6), "cpu": ("throttled_time", 1e-9)}
# /proc/stat counts in ticks of 10 ms, and the tick that a short burst is assigned to is random: two per core may be
# missing at one time and appear later.
TICKS_OWED = 2


class InterferenceClock:
    """Clock of the CPU seconds of `cores` that others took since it was made. It never decreases.

    Included: all that ran there except this process and its `multiprocessing` children (loaders), interrupts, steal,
    time throttled by a quota, and time in which heat slowed the GPU, once per core. Unreadable sources count as 0.0:
    the clock stands still without /proc, and also without cores (for ranks that share cores, and would count each
    other as interference).
    """

    def __init__(self, cores: Collection[int], device: torch.device | None = None) -> None:
        self._names = {f"cpu{core}" for core in cores}
        self._gpu = Gpu(device) if device is not None and device.type == "cuda" else None
        self._quotas = [
            (group / "cpu.stat", name, unit)
            for controller, (name, unit) in QUOTAS.items()
            for group in control_groups(controller, PROC, CGROUPS)
        ]
        self._tick = 1 / os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 0.01
        self._by_processes = 0.0
        self._owed = 0.0  # by ticks that have not been counted yet: zero or negative
        self._last_busy, steal = self._busy_and_steal()
        self._start = steal + self._throttled()

    def __call__(self) -> float:
        """Return the seconds so far."""
        busy, steal = self._busy_and_steal()
        balance = self._owed + busy - self._last_busy
        self._last_busy = busy
        self._by_processes += max(0.0, balance)
        self._owed = max(min(0.0, balance), -TICKS_OWED * self._tick * len(self._names))
        return self._by_processes + steal + self._throttled() - self._start

    def _busy_and_steal(self) -> tuple[float, float]:
        """Seconds of the cores used by other processes, and those given to other virtual machines."""
        cores = core_ticks(self._names)
        if not cores:
            return 0.0, 0.0
        busy = sum(sum(ticks[:3]) + sum(ticks[5:7]) for ticks in cores) * self._tick
        return busy - own_seconds(), sum(sum(ticks[7:8]) for ticks in cores) * self._tick

    def _throttled(self) -> float:
        if not self._names:
            return 0.0
        return self._quota_seconds() + len(self._names) * ((self._gpu and self._gpu.hot_seconds()) or 0.0)

    def _quota_seconds(self) -> float:
        """Time for which quotas stopped this process's control group and its parents, summed over cores."""
        return sum(unit * (counter(file, name) or 0) for file, name, unit in self._quotas)


def own_seconds() -> float:
    """Return the CPU time of this process and its `multiprocessing` children, in nanosecond resolution."""
    return time.process_time() + children_seconds()


def children_seconds() -> float:
    """Return the CPU time of the `multiprocessing` children, ended ones included."""
    children = multiprocessing.active_children()  # also makes the system count ended children as such
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime + sum(_process_seconds(child.pid) for child in children)


def _process_seconds(pid: int | None) -> float:
    """CPU time of all threads of a process, by the clock that `clock_getcpuclockid` returns on Linux."""
    if pid is None:
        return 0.0
    with contextlib.suppress(OSError):  # it has just ended
        return time.clock_gettime((~pid << 3) | 2)
    return 0.0


def core_ticks(names: Collection[str]) -> list[list[int]]:
    """Return the ticks of each core, or of "cpu", which is all of them; empty: not readable.

    Columns: user, nice, system, idle, iowait, irq, softirq, steal, then guests, which are included in user.
    """
    if not names:
        return []
    with contextlib.suppress(OSError, ValueError), open(PROC / "stat") as lines:
        found = []
        for line in lines:
            name, *fields = line.split()
            if name in names:
                found.append([int(field) for field in fields])
            if len(found) == len(names) or not name.startswith("cpu"):  # skips the many lines of interrupts
                break
        return found
    return []
