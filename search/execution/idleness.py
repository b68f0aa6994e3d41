"""Whether a task still does anything: one that takes no time of a processor and moves no bytes for long hangs."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import psutil

from trainables.contract import waited_since

STEPS = 4  # in a row, without anything done
LEAST_CORES = 0.05  # Ray itself takes a hundredth of one
LEAST_BYTES_PER_SECOND = 1e5


@dataclass(frozen=True)
class Work:
    """What a process and its children have done so far."""

    cpu_seconds: float
    bytes_moved: float

    def is_more_than(self, before: Work, seconds: float) -> bool:
        """Whether something was done in between."""
        cores = (self.cpu_seconds - before.cpu_seconds) / seconds
        moved = (self.bytes_moved - before.bytes_moved) / seconds
        return cores >= LEAST_CORES or moved >= LEAST_BYTES_PER_SECOND


class Idleness:
    """Watches this process from a thread of its own, calls `hangs` once after `patience` seconds without work.

    What happens within `trainables.contract.waiting` does not count: there it waits for others.
    """

    def __init__(self, patience: float, hangs: Callable[[], None], work: Callable[[], Work] | None = None) -> None:
        self._step, self._hangs, self._work = patience / STEPS, hangs, work or _work
        self._over = threading.Event()

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """For the time of a task."""
        thread = threading.Thread(target=self._watch, daemon=True, name="idleness")
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _watch(self) -> None:
        idle, before, looked = 0, self._work(), time.monotonic()
        while not self._over.wait(self._step):
            now = self._work()
            working = waited_since(looked) or now.is_more_than(before, self._step)
            idle, before, looked = 0 if working else idle + 1, now, time.monotonic()
            if idle == STEPS:
                self._hangs()
                return


def _work() -> Work:
    cpu_seconds = bytes_moved = 0.0
    itself = psutil.Process()
    for process in (itself, *itself.children(recursive=True)):
        with contextlib.suppress(psutil.Error, NotImplementedError):
            times = process.cpu_times()
            cpu_seconds += times.user + times.system
        with contextlib.suppress(psutil.Error, AttributeError):  # a container may hide it
            counted = process.io_counters()
            bytes_moved += counted.read_bytes + counted.write_bytes
            bytes_moved += getattr(counted, "read_chars", 0) + getattr(counted, "write_chars", 0)
    return Work(cpu_seconds, bytes_moved)
