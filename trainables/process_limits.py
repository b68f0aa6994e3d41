"""Limits of this process: the cores and the memory that it may use.

On Linux, control groups limit a container, a Slurm job or a service.
"""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")


def control_groups(controller: str, proc: Path = PROC, cgroups: Path = CGROUPS) -> list[Path]:
    """Return the folders of this process's control group and of all its parents; controller "": version 2."""
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
    except OSError:
        return []
    root = cgroups / controller
    for _, controllers, path in (line.split(":", 2) for line in lines if line.count(":") >= 2):
        if controller in controllers.split(","):
            group = root / path.lstrip("/")
            return [group, *(parent for parent in group.parents if parent.is_relative_to(root))]
    return []


def counter(file: Path, name: str) -> int | None:
    """Return the number after `name` in a file of the kernel with a name on each line; None: not readable."""
    with suppress(OSError, ValueError):
        lines = map(str.split, file.read_text().splitlines())
        return next((int(words[1]) for words in lines if words[:1] == [name]), None)
    return None


def limits(controller: str, *names: str, proc: Path = PROC, cgroups: Path = CGROUPS) -> list[list[float]]:
    """Return the numbers in these files, for each of the control groups; "max" is infinite.

    A missing or unreadable file adds no number.
    """
    found = list[list[float]]()
    for group in control_groups(controller, proc, cgroups):
        numbers = list[float]()
        for name in names:
            with suppress(OSError, ValueError):
                words = (group / name).read_text().split()
                numbers += [math.inf if word == "max" else float(word) for word in words]
        found.append(numbers)
    return found


def allowed_cores() -> frozenset[int]:
    """Return the cores that this process may run on: all, where the system binds none, as macOS does."""
    bound = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    return frozenset(bound)


def memory_bytes(proc: Path = PROC, cgroups: Path = CGROUPS) -> int:
    """Return the memory that this process may use: that of the machine, or less by the limit of a control group."""
    import psutil  # a results folder loads without it

    found = limits("", "memory.max", proc=proc, cgroups=cgroups)
    found += limits("memory", "memory.limit_in_bytes", proc=proc, cgroups=cgroups)
    return int(min([psutil.virtual_memory().total, *(limit[0] for limit in found if limit)]))
