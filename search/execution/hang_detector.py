"""Detector of tasks that hang: they use no processor time and move no bytes for long."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import psutil

from search.execution.ray_watchdog import watchdog
from trainables.contract import waited_since

STEPS = 4  # in a row without any work
MIN_CORES = 0.05  # Ray itself takes a hundredth of a core
MIN_BYTES_PER_SECOND = 1e5


@dataclass(frozen=True)
class Work:
    """Work that a process and its children have done so far."""

    cpu_seconds: float
    bytes_moved: float

    def is_more_than(self, before: Work, seconds: float) -> bool:
        """Return whether work was done in between."""
        cores = (self.cpu_seconds - before.cpu_seconds) / seconds
        moved = (self.bytes_moved - before.bytes_moved) / seconds
        return cores >= MIN_CORES or moved >= MIN_BYTES_PER_SECOND


def measure_work() -> Work:
    """Measure the work of this process and its children so far."""
    cpu_seconds = bytes_moved = 0.0
    itself = psutil.Process()
    for process in (itself, *itself.children(recursive=True)):
        with contextlib.suppress(psutil.Error, NotImplementedError):
            times = process.cpu_times()
            cpu_seconds += times.user + times.system
            cpu_seconds += getattr(times, "children_user", 0) + getattr(times, "children_system", 0)  # that have ended
        with contextlib.suppress(psutil.Error, AttributeError):  # a container may hide it
            counted = process.io_counters()
            bytes_moved += counted.read_bytes + counted.write_bytes
            bytes_moved += getattr(counted, "read_chars", 0) + getattr(counted, "write_chars", 0)
    return Work(cpu_seconds, bytes_moved)


def hang_detector(
    timeout_seconds: float, on_hang: Callable[[], object], measure: Callable[[], Work] = measure_work
) -> AbstractContextManager[None]:
    """Call `on_hang` once, from a thread, when this process has done no work for `timeout_seconds`.

    Time within `trainables.contract.waiting` does not count: the process waits for others on purpose.
    """
    step_seconds = timeout_seconds / STEPS
    idle_steps, before, looked_at = 0, measure(), time.monotonic()

    def find_hang() -> bool | None:
        nonlocal idle_steps, before, looked_at
        now = measure()
        works = waited_since(looked_at) or now.is_more_than(before, step_seconds)
        idle_steps, before, looked_at = 0 if works else idle_steps + 1, now, time.monotonic()
        return True if idle_steps == STEPS else None

    return watchdog(find_hang, lambda found: on_hang(), step_seconds)
