"""Stage times of a step: data loading, transfer, forward, backward, communication, update.

The code that does the work marks the end of each stage on the trial's Timeline. It is on only in the few profiled
steps, which the meter leaves out.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch

from trainables.contract import STAGES, Stage


class Timeline:
    """Seconds by stage, from mark to mark, so that the stages of a step add up to the step.

    On a CPU the times come from the clock. On a GPU they come from events in its stream, which are read at `stop`: a
    stage is the time that the device spent on it, `load` and `transfer` are the time that it idled or copied.
    """

    def __init__(self, device: torch.device, clock: Callable[[], float] = time.perf_counter) -> None:
        self._cuda = device.type == "cuda"
        self._clock = clock
        self.on = False
        self.steps = 0  # profiled ones
        self._seconds: dict[Stage, float] = defaultdict(float)
        self._host_seconds, self._host_edge = 0.0, 0.0
        self._marks: list[tuple[Stage, Any]] = []  # seconds, or torch.cuda.Event
        self._start: Any = 0.0

    def start(self) -> None:
        """Start the first profiled step."""
        self.on = True
        self._start = self._edge()
        if self._cuda:
            self._host_edge = self._clock()

    def mark(self, stage: Stage) -> None:
        """Assign the time since the last mark to this stage. Costs nothing while the timeline is off."""
        if self.on:
            self._marks.append((stage, self._edge()))
            if self._cuda:
                before, self._host_edge = self._host_edge, self._clock()
                self._host_seconds += (self._host_edge - before) * (stage not in ("load", "transfer"))

    def step(self) -> None:
        """End a step."""
        self.steps += self.on

    def stop(self) -> None:
        """Stop profiling; on a GPU wait for its work."""
        self.on = False
        if self._cuda:
            torch.cuda.synchronize()
        before = self._start
        for stage, edge in self._marks:
            if isinstance(before, torch.cuda.Event):
                self._seconds[stage] += before.elapsed_time(edge) / 1000  # from milliseconds
            else:
                self._seconds[stage] += edge - before
            before = edge
        self._marks.clear()

    def seconds_per_step(self) -> dict[Stage, float]:
        """Return the mean over the profiled steps, for each stage that was marked."""
        return {stage: self._seconds[stage] / self.steps for stage in STAGES if stage in self._seconds and self.steps}

    def host_seconds_per_step(self) -> float | None:
        """Return the host's time to launch the stages after loading and transfer; None: not on a GPU, or no step."""
        return self._host_seconds / self.steps if self._cuda and self.steps else None

    def _edge(self) -> Any:
        if not self._cuda:
            return self._clock()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event
