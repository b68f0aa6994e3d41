"""Where a step's time goes: waiting for data, transfer, forward, backward, communication, update.

Whoever does the work marks the end of each stage on the trial's one Timeline. It is off except in the few steps that
are profiled, which the meter leaves out.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Literal, get_args

import torch

Stage = Literal["load", "transfer", "forward", "backward", "communicate", "update"]
STAGES: tuple[Stage, ...] = get_args(Stage)


class Timeline:
    """Seconds by stage, from mark to mark, so that the stages of a step add up to the step.

    On a CPU by the clock. On a GPU by events in its stream, for which nobody waits until `stop`: a stage is the time
    that the device spent on it, and `load` and `transfer` what it idled or copied until the batch was there.
    """

    def __init__(self, device: torch.device, clock: Callable[[], float] = time.perf_counter) -> None:
        self._cuda = device.type == "cuda"
        self._clock = clock
        self.on = False
        self._steps = 0
        self._seconds: dict[Stage, float] = defaultdict(float)
        self._marks: list[tuple[Stage, float | torch.cuda.Event]] = []
        self._start: float | torch.cuda.Event = 0.0

    def start(self) -> None:
        """The first profiled step begins."""
        self.on = True
        self._start = self._edge()

    def mark(self, stage: Stage) -> None:
        """What was done since the last mark was this stage. Costs nothing while the timeline is off."""
        if self.on:
            self._marks.append((stage, self._edge()))

    def step(self) -> None:
        """A step is over."""
        self._steps += self.on

    def stop(self) -> None:
        """No step is profiled any more; on a GPU its work is waited for."""
        self.on = False
        if self._cuda:
            torch.cuda.synchronize()
        before = self._start
        for stage, edge in self._marks:
            self._seconds[stage] += _between(before, edge)
            before = edge
        self._marks.clear()

    @property
    def steps(self) -> int:
        """How many were profiled."""
        return self._steps

    def seconds_per_step(self) -> dict[Stage, float]:
        """The mean over the profiled steps, for each stage that was marked."""
        return {stage: self._seconds[stage] / self._steps for stage in STAGES if stage in self._seconds and self._steps}

    def _edge(self) -> float | torch.cuda.Event:
        if not self._cuda:
            return self._clock()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event


def _between(before: float | torch.cuda.Event, after: float | torch.cuda.Event) -> float:
    if isinstance(before, torch.cuda.Event) and isinstance(after, torch.cuda.Event):
        return float(before.elapsed_time(after)) / 1000  # from milliseconds
    assert isinstance(before, float)
    assert isinstance(after, float)
    return after - before
