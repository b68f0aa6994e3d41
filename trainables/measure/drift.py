"""How much the rate of the same work differs between short measurements on this machine: from repeats, kept.

One measurement cannot show it: it may lie between two jumps of the rate. Repeats are trials that differ in nothing that
takes time, the stretches of a long one, and the yardstick's steps, which each trial on a CPU takes. Each is kept as a
level. The same work is meant to the letter: what another program, batch or kernel does to the rate is no drift.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from trainables.machine.kept import kept, machine

# Relative standard deviation where nothing is known, and what that belief weighs, in repeats. Full-width VGG19 in a
# new process each time, 3 times: 3.2, 3.4 and 5.7% (benchmarks/throughput.py on 2 virtual cores). A small network in
# one process: 10% (benchmarks/meter.py). The belief keeps its weight: no machine is taken for steadier than 0.5%.
TYPICAL, BELIEF = 0.03, 4.0
MOST_LEVELS = 128  # the last ones: a quarter of an hour of probes
RECENT_SECONDS = 3600.0  # neighbours and the program change

Level = tuple[str, float, float]  # of which work, when (seconds since 1970), natural logarithm of the rate


@dataclass(frozen=True)
class Drift:
    """Relative standard deviation between measurements, and how well it is known."""

    deviation: float = TYPICAL
    degrees_of_freedom: float = math.inf


UNKNOWN = Drift()


def drift_of(levels: Sequence[Level]) -> Drift:
    """Within works, pooled over them; what is typical counts like some more repeats (scaled inverse chi-squared).

    Works that were measured once tell nothing.
    """
    rates: dict[str, list[float]] = defaultdict(list)
    for work, _, rate in levels:
        rates[work].append(rate)
    squares = math.fsum((x - math.fsum(some) / len(some)) ** 2 for some in rates.values() for x in some)
    repeats = len(levels) - len(rates)
    if not repeats:
        return UNKNOWN
    degrees_of_freedom = BELIEF + repeats
    return Drift(math.sqrt((BELIEF * TYPICAL**2 + squares) / degrees_of_freedom), degrees_of_freedom)


def named(work: Mapping[str, Any]) -> str:
    """A short name for all that a rate depends on beside the machine (plain data)."""
    return hashlib.sha256(json.dumps(work, sort_keys=True).encode()).hexdigest()[:16]


class Levels:
    """Those that are kept of this machine, computing with so many threads or on this `device`."""

    def __init__(self, device: torch.device, threads: int, now: Callable[[], float] = time.time) -> None:
        self._machine, self._now = machine(device, threads), now

    def drift(self) -> Drift:
        """What is known by now."""
        return drift_of(self._kept([]))

    def learn(self, rates: Mapping[str, Sequence[float]]) -> None:
        """Works were measured: their rates, each of as long a stretch as a probe, by their names."""
        if any(rates.values()):
            now = self._now()
            self._kept([(work, now, math.log(rate)) for work, some in rates.items() for rate in some])

    def _kept(self, new: list[Level]) -> list[Level]:
        figures = kept(
            "drift",
            self._machine,
            lambda old: {"levels": [*(old or {"levels": []})["levels"], *new][-MOST_LEVELS:]},
            lambda old: not new,
        )
        now = self._now()
        return [(work, when, rate) for work, when, rate in figures["levels"] if now - when <= RECENT_SECONDS]
