"""Core affinity: bind a trial's threads and later children to cores that no other trial has claimed."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from trainables.process_limits import allowed_cores

TASKS = Path("/proc/self/task")
TOPOLOGY = Path("/sys/devices/system/cpu")


@contextlib.contextmanager
def claimed_cores(count: int) -> Iterator[frozenset[int]]:
    """Bind all threads of the process to `count` cores of those that it may use, and yield these cores.

    Trials of one user on one machine claim cores by file locks, which end with the process at the latest. If too few
    cores are free, or the process cannot be bound, it stays as it is: yields all cores that it may use (none: unknown).
    """
    if sys.platform != "linux":
        yield frozenset()
        return
    allowed = allowed_cores()
    with contextlib.ExitStack() as claims:
        claimed = _claim(_siblings_adjacent(allowed), count, claims)
        if len(claimed) < count or not claimed:
            yield allowed
            return
        before = _affinities()
        try:
            _bind(dict.fromkeys(before, claimed))
            yield claimed
        finally:
            # threads started since then inherited the binding
            _bind({thread: before.get(thread, allowed) for thread in _affinities()})


def _claim(cores: list[int], count: int, claims: contextlib.ExitStack) -> frozenset[int]:
    """Lock the first `count` free cores, or none; closing `claims` releases them."""
    claimed: set[int] = set()
    folder = Path(tempfile.gettempdir()) / f"training-search-cores-{os.getuid()}"
    with contextlib.suppress(OSError), contextlib.ExitStack() as tentative:
        folder.mkdir(exist_ok=True)
        with _lock(folder / "turn", wait=True):  # two trials that each hold half would both fail
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
    import fcntl  # not available on Windows

    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            yield file
        finally:
            # closing is not enough: children forked in between have the file open as well
            fcntl.flock(file, fcntl.LOCK_UN)


def _siblings_adjacent(cores: frozenset[int]) -> list[int]:
    """Sort hardware threads of one physical core next to each other, so that two trials do not share one."""
    return sorted(cores, key=lambda core: (_first_sibling(core), core))


def _first_sibling(core: int) -> int:
    try:
        siblings = TOPOLOGY.joinpath(f"cpu{core}", "topology", "thread_siblings_list").read_text()
        return int(siblings.replace("-", ",").split(",")[0])
    except (OSError, ValueError):
        return core


def _affinities() -> dict[int, frozenset[int]]:
    found = {}
    with contextlib.suppress(OSError):
        for task in TASKS.iterdir():
            with contextlib.suppress(OSError):  # the thread has just ended
                found[int(task.name)] = frozenset(os.sched_getaffinity(int(task.name)))
    return found


def _bind(affinities: dict[int, frozenset[int]]) -> None:
    for thread, cores in affinities.items():
        with contextlib.suppress(OSError):
            os.sched_setaffinity(thread, cores)
