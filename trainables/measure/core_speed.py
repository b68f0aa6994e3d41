"""Current speed of the cores: time of a fixed piece of arithmetic, relative to its fastest run on this machine.

A hot or power-capped processor, and other load on the same physical core, appear in no counter that every system
exposes; they slow this arithmetic. Load on memory alone is not detected.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from trainables.machine.measurement_cache import cached_measurement, machine_fingerprint

ROWS = 512  # of square matrices: a millisecond, all in the cache
REPETITIONS = 3  # the fastest counts
FIRST_REPETITIONS = 100  # on a machine that was not measured yet


class CoreSpeed:
    """Measure the slowdown of the cores; a call keeps all threads busy for some milliseconds."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._a, self._b = torch.full((ROWS, ROWS), 0.5), torch.full((ROWS, ROWS), 2.0)
        fingerprint = machine_fingerprint(torch.device("cpu"), torch.get_num_threads())
        measured = cached_measurement(
            "pace", fingerprint, lambda _: {"seconds": self._fastest(FIRST_REPETITIONS)}, lambda old: "seconds" in old
        )
        self._best: float = measured["seconds"]

    def __call__(self) -> float:
        """Return the time now over the shortest ever: 1.0 is full speed."""
        now = self._fastest(REPETITIONS)
        self._best = min(self._best, now)
        return now / self._best

    def _fastest(self, repetitions: int) -> float:
        fastest = float("inf")
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            for _ in range(repetitions):
                started = self._clock()
                torch.mm(self._a, self._b)
                fastest = min(fastest, self._clock() - started)
        return fastest
