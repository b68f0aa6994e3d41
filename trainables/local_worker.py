"""Worker of a trial outside of a search, and the resources of this machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from trainables.contract import Data, Measurement, Resources
from trainables.process_limits import allowed_cores

Listener = Callable[[Measurement], bool]
OnStep = Callable[[int, int, int], None]  # of epoch, step and steps of the epoch


@dataclass
class LocalWorker:
    """A process of a trial outside of a search. It keeps the reports; `listener` decides whether to go on."""

    folder: Path
    epochs: int = 1
    data: Data = field(default_factory=lambda: Data(name="generated"))
    resources: Resources = field(default_factory=lambda: Resources(cpus=1))
    rank: int = 0
    world_size: int = 1
    listener: Listener = lambda measurement: True
    reported: list[Measurement] = field(default_factory=list)
    on_step: OnStep | None = None
    all_views: bool = False  # test with averages over versions of the inputs, too
    evaluate_every: int = 1  # epochs

    def report(self, measurement: Measurement) -> bool:
        """Keep it and ask `listener`, which must give the same answer in all processes."""
        self.reported.append(measurement)
        return self.listener(measurement)


def machine() -> Resources:
    """Return the cores and GPUs that this process may use."""
    cpus = len(allowed_cores())
    try:
        import torch
    except ImportError:
        return Resources(cpus)
    return Resources(cpus, torch.cuda.device_count())
