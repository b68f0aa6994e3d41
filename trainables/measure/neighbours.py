"""CPU time that others take from a trial's cores: other processes, the hypervisor, a quota, a hot GPU."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import time
from collections.abc import Collection
from pathlib import Path

import torch

from trainables.machine.nvml import Gpu

PROC = Path("/proc")
# Where a container reads what its quota did, by version: name and unit in seconds.
QUOTAS = (
    (Path("/sys/fs/cgroup/cpu.stat"), "throttled_usec", 1e-6),
    (Path("/sys/fs/cgroup/cpu/cpu.stat"), "throttled_time", 1e-9),
)
# /proc/stat counts in ticks of 10 ms, and which tick a short burst falls into is chance: two of them per core may be
# missing now and come later.
TICKS_OWED = 2

_Fields = list[int]


class ForeignLoad:
    """A clock, in CPU seconds: how much of the time of `cores` went to others since it was made. It never goes back.

    In: whatever ran there that is neither this process nor one of its `multiprocessing` children (loaders), interrupts,
    steal, time in which a quota held the trial back, and time in which the GPU was slowed by heat, once per core. What
    cannot be read counts as 0.0: without /proc the clock stands still, and so it does without cores (for ranks that
    share theirs, and would take each other for strangers).
    """

    def __init__(self, cores: Collection[int], device: torch.device | None = None) -> None:
        self._names = {f"cpu{core}" for core in cores}
        self._gpu = Gpu(device) if device is not None and device.type == "cuda" else None
        self._tick = 1 / os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 0.01
        self._others = 0.0
        self._owed = 0.0  # by ticks that have not been counted yet: zero or negative
        self._last_busy, self._steal_at_start = self._busy_and_steal()
        self._held_back_at_start = self._held_back()

    def __call__(self) -> float:
        """Seconds so far."""
        busy, steal = self._busy_and_steal()
        balance = self._owed + busy - self._last_busy
        self._last_busy = busy
        self._others += max(0.0, balance)
        self._owed = max(min(0.0, balance), -TICKS_OWED * self._tick * len(self._names))
        return self._others + steal - self._steal_at_start + self._held_back() - self._held_back_at_start

    def _busy_and_steal(self) -> tuple[float, float]:
        """Seconds of the cores that were not ours, and that the hypervisor gave to other machines."""
        cores = core_ticks(self._names)
        if not cores:
            return 0.0, 0.0
        busy = sum(sum(ticks[:3]) + sum(ticks[5:7]) for ticks in cores) * self._tick
        return busy - own_seconds(), sum(sum(ticks[7:8]) for ticks in cores) * self._tick

    def _held_back(self) -> float:
        if not self._names:
            return 0.0
        return _quota_seconds() + len(self._names) * ((self._gpu and self._gpu.hot_seconds()) or 0.0)


def own_seconds() -> float:
    """CPU time of this process and its `multiprocessing` children, to the nanosecond."""
    return time.process_time() + children_seconds()


def children_seconds() -> float:
    """Theirs alone; ended ones' too."""
    children = multiprocessing.active_children()  # lets the system count those that have ended among the ended
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    living = sum(_process_seconds(child.pid) for child in children)
    return ended.ru_utime + ended.ru_stime + living


def _process_seconds(pid: int | None) -> float:
    """All threads of a process, by its CPU clock: what `clock_getcpuclockid` returns on Linux."""
    if pid is None:
        return 0.0
    with contextlib.suppress(OSError):  # it has just ended
        return time.clock_gettime((~pid << 3) | 2)
    return 0.0


def core_ticks(names: Collection[str]) -> list[_Fields]:
    """Of each core, or of "cpu", all of them: user nice system idle iowait irq softirq steal, and guests, who are in
    user already. Empty: not readable.
    """
    if not names:
        return []
    with contextlib.suppress(OSError, ValueError), open(PROC / "stat") as lines:
        found = []
        for line in lines:
            name, *fields = line.split()
            if name in names:
                found.append([int(field) for field in fields])
            if len(found) == len(names) or not name.startswith("cpu"):  # the interrupts that follow are many
                break
        return found
    return []


def _quota_seconds() -> float:
    """Time for which this process's group was not let run, summed over cores."""
    for file, name, unit in QUOTAS:
        with contextlib.suppress(OSError, ValueError):
            for line in file.read_text().splitlines():
                key, value = line.split()
                if key == name:
                    return int(value) * unit
    return 0.0
