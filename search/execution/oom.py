"""Kernel's count of processes killed for lack of memory, which tells such a death from any other kill."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trainables.process_limits import CGROUPS, PROC, control_groups, counter


def kernel_oom_kills(proc: Path = PROC, cgroups: Path = CGROUPS) -> int:
    """Return how many processes of this process's control group the kernel has killed for lack of memory so far.

    Where groups have no such count, return that of the whole node; 0: not available either. Source:
    `oom_kill` of memory.events and memory.oom_control in Linux's documents of control groups 2 and 1, and of proc(5).
    """
    counts = (counter(file, "oom_kill") for file in _files(proc, cgroups))
    return next((count for count in counts if count is not None), 0)


def _files(proc: Path, cgroups: Path) -> Iterator[Path]:
    """Return the files that may have the count, of the closest group first: it may be a parent that counts."""
    for group in control_groups("", proc, cgroups):
        yield group / "memory.events.local"  # without the groups within it
        yield group / "memory.events"
    for group in control_groups("memory", proc, cgroups):
        yield group / "memory.oom_control"
    yield proc / "vmstat"
