"""Limit on the steps that a GPU has queued: enough to keep it busy, few enough that batches do not pile up there."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import torch

MAX_STEPS = 8


class StepsInFlight:
    """Block the host while the device has more than MAX_STEPS steps queued. A CPU queues none."""

    def __init__(self, device: torch.device, edge: Callable[[], Any] | None = None) -> None:
        """`edge` marks the work queued so far, by an object with CUDA's `Event.synchronize`; None: a CUDA event."""
        self._edge = edge or (_recorded_event if device.type == "cuda" else None)
        self._queued: deque[Any] = deque()

    def step(self) -> None:
        """Count one more queued step, and wait for an earlier one if there are too many."""
        if self._edge is None:
            return
        self._queued.append(self._edge())
        if len(self._queued) > MAX_STEPS:
            self._queued.popleft().synchronize()


def _recorded_event() -> torch.cuda.Event:
    event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]  # leaves the core to the loaders
    event.record()
    return event
