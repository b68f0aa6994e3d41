"""Cores for one trial alone: its threads and later children are bound to cores that no other trial has claimed."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

TASKS = Path("/proc/self/task")
TOPOLOGY = Path("/sys/devices/system/cpu")


@contextlib.contextmanager
def claimed_cores(count: int) -> Iterator[frozenset[int]]:
    """So many cores, of those that this process may use; all threads of the process run there and nowhere else.

    Trials of one user on one machine claim them by locks on files, which end with the process at the latest. Where too
    few cores are free, or a process cannot be bound, nothing is: yields all cores that it may use (none: unknown).
    """
    if sys.platform != "linux":
        yield frozenset()
        return
    allowed = frozenset(os.sched_getaffinity(0))
    with contextlib.ExitStack() as claims:
        claimed = _claim(_neighbours_together(allowed), count, claims)
        if len(claimed) < count or not claimed:
            yield allowed
            return
        before = _affinities()
        try:
            _bind(dict.fromkeys(before, claimed))
            yield claimed
        finally:
            # threads that are new since then were bound by birth
            _bind({thread: before.get(thread, allowed) for thread in _affinities()})


def _claim(cores: list[int], count: int, claims: contextlib.ExitStack) -> frozenset[int]:
    """The first `count` that are free, or none; they are given back when `claims` is closed."""
    claimed: set[int] = set()
    folder = Path(tempfile.gettempdir()) / f"training-search-cores-{os.getuid()}"
    with contextlib.suppress(OSError), contextlib.ExitStack() as tentative:
        folder.mkdir(exist_ok=True)
        with _lock(folder / "turn", wait=True):  # two that each hold half of the cores would both go without
            for core in cores:
                if len(claimed) == count:
                    break
                with contextlib.suppress(BlockingIOError):
                    tentative.enter_context(_lock(folder / f"{core}", wait=False))
                    claimed.add(core)
            if len(claimed) == count:
                claims.enter_context(tentative.pop_all())
                return frozenset(claimed)
    return frozenset()


@contextlib.contextmanager
def _lock(path: Path, *, wait: bool) -> Iterator[IO[str]]:
    import fcntl  # there is none on Windows

    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            yield file
        finally:
            # closing is not enough: children that were forked meanwhile have the file open too
            fcntl.flock(file, fcntl.LOCK_UN)


def _neighbours_together(cores: frozenset[int]) -> list[int]:
    """Hardware threads of one core next to each other: two trials should not share one."""
    return sorted(cores, key=lambda core: (_first_sibling(core), core))


def _first_sibling(core: int) -> int:
    try:
        siblings = TOPOLOGY.joinpath(f"cpu{core}", "topology", "thread_siblings_list").read_text()
        return int(siblings.replace("-", ",").split(",")[0])
    except (OSError, ValueError):
        return core


def _affinities() -> dict[int, frozenset[int]]:
    """Of each thread of this process."""
    found = {}
    with contextlib.suppress(OSError):
        for task in TASKS.iterdir():
            with contextlib.suppress(OSError):  # it has just ended
                found[int(task.name)] = frozenset(os.sched_getaffinity(int(task.name)))
    return found


def _bind(affinities: dict[int, frozenset[int]]) -> None:
    for thread, cores in affinities.items():
        with contextlib.suppress(OSError):
            os.sched_setaffinity(thread, cores)
