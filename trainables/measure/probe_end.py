"""End of a probe: the rate has settled, or the time is up."""

from __future__ import annotations

import torch

from trainables.contract import Worker
from trainables.measure.instruments import Instruments
from trainables.measure.throughput import MIN_WINDOWS
from trainables.parallel import ranks

# Seconds of a probe, warm-up included, after which it ends although its rate has not settled: the first as soon as
# enough windows were uncontended, the second as soon as there is a rate.
PROBE_SECONDS, MAX_PROBE_SECONDS = 8.0, 9.0
STEPS_BETWEEN_AGREEMENTS = 10  # of the ranks, whether to stop, but for the first steps; each takes time


def may_stop(instruments: Instruments, worker: Worker, device: torch.device, step: int, seconds: float) -> bool:
    """Return whether all ranks may stop after this step (1, 2, ...), `seconds` after the start."""
    if worker.world_size > 1 and step > STEPS_BETWEEN_AGREEMENTS and step % STEPS_BETWEEN_AGREEMENTS:
        return False
    late = seconds >= PROBE_SECONDS and len(instruments.meter.uncontended_windows) >= MIN_WINDOWS
    mine = late or (seconds >= MAX_PROBE_SECONDS and len(instruments.meter.windows) >= 1) or instruments.settled()
    return bool(ranks.reduced([float(mine)], "min", worker.world_size, device)[0])
