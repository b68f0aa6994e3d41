"""How fast the cores are just now: a fixed piece of arithmetic, timed, beside the fastest that it was ever seen here.

A hot or capped processor and a neighbour on the same physical core show in no counter that can be read everywhere; they
slow this. What slows memory alone is not seen by it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from trainables.machine.kept import kept, machine

ROWS = 512  # of square matrices: a millisecond, all in the cache
REPETITIONS = 3  # of which the fastest counts
FIRST_REPETITIONS = 100  # where nothing is known yet


class Pace:
    """Called, it takes some milliseconds of all threads and tells how slow they are: 1.0 is as fast as ever."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._a, self._b = torch.full((ROWS, ROWS), 0.5), torch.full((ROWS, ROWS), 2.0)
        fingerprint = machine(torch.device("cpu"), torch.get_num_threads())
        figures = kept(
            "pace", fingerprint, lambda _: {"seconds": self._fastest(FIRST_REPETITIONS)}, lambda old: "seconds" in old
        )
        self._best: float = figures["seconds"]

    def __call__(self) -> float:
        """Seconds now over the fewest ever."""
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
