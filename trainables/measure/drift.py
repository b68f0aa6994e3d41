"""Drift: relative standard deviation of the same workload's rate between short measurements on this machine.

One measurement cannot show drift: it may lie between two jumps of the rate. Drift is estimated from repeats, which are
trials whose settings differ only in what takes no time, the parts of a long trial, and the reference steps of each CPU
trial. Only identical workloads count as repeats: what another program, batch or kernel does to the rate is no drift.
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

from trainables.machine.measurement_cache import cached_measurement, machine_fingerprint

# Relative standard deviation assumed on an unknown machine, and its weight in repeats. Full-width VGG19 in a new
# process each time, 3 times: 3.2, 3.4 and 5.7% (benchmarks/throughput.py on 2 virtual cores). A small network in one
# process: 10% (benchmarks/meter.py). The prior keeps its weight: no machine is estimated to be steadier than 0.5%.
TYPICAL_DRIFT, PRIOR_REPEATS = 0.03, 4.0
MAX_RECORDS = 128  # the latest: a quarter of an hour of probes
RECENT_SECONDS = 3600.0  # load by others and the program itself change

RateRecord = tuple[str, float, float]  # workload, seconds since 1970, natural logarithm of the rate


@dataclass(frozen=True)
class Drift:
    """Relative standard deviation between measurements, and the degrees of freedom of its estimate."""

    deviation: float = TYPICAL_DRIFT
    degrees_of_freedom: float = math.inf


UNKNOWN_DRIFT = Drift()


def drift_of(records: Sequence[RateRecord]) -> Drift:
    """Estimate the drift within workloads, pooled over them, with the typical one as a prior.

    The prior counts like PRIOR_REPEATS more repeats (scaled inverse chi-squared). Workloads measured once are ignored.
    """
    rates: dict[str, list[float]] = defaultdict(list)
    for workload, _, rate in records:
        rates[workload].append(rate)
    squares = math.fsum((x - math.fsum(some) / len(some)) ** 2 for some in rates.values() for x in some)
    repeats = len(records) - len(rates)
    if not repeats:
        return UNKNOWN_DRIFT
    degrees_of_freedom = PRIOR_REPEATS + repeats
    return Drift(math.sqrt((PRIOR_REPEATS * TYPICAL_DRIFT**2 + squares) / degrees_of_freedom), degrees_of_freedom)


def workload_id(workload: Mapping[str, Any]) -> str:
    """Hash of everything that determines a rate besides the machine (plain data)."""
    return hashlib.sha256(json.dumps(workload, sort_keys=True).encode()).hexdigest()[:16]


class RateHistory:
    """Recent rates on this machine, stored on disk, for this `device` and number of threads."""

    def __init__(self, device: torch.device, threads: int, now: Callable[[], float] = time.time) -> None:
        self._machine, self._now = machine_fingerprint(device, threads), now

    def drift(self) -> Drift:
        """Estimate the drift from the recent rates."""
        return drift_of(self._recent([]))

    def record(self, rates: Mapping[str, Sequence[float]]) -> None:
        """Add measured rates by workload; each is over as long a time as a probe takes."""
        if any(rates.values()):
            now = self._now()
            self._recent([(workload, now, math.log(rate)) for workload, some in rates.items() for rate in some])

    def _recent(self, new: list[RateRecord]) -> list[RateRecord]:
        stored = cached_measurement(
            "drift",
            self._machine,
            lambda old: {"levels": [*(old or {"levels": []})["levels"], *new][-MAX_RECORDS:]},
            lambda old: not new,
        )
        now = self._now()
        return [(workload, when, rate) for workload, when, rate in stored["levels"] if now - when <= RECENT_SECONDS]
