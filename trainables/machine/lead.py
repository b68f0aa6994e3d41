"""How far the host may be ahead of a GPU: far enough to keep it busy, not so far that batches pile up there."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

import torch

MOST_STEPS = 8


class Edge(Protocol):
    """A place in the work of a device, such as `torch.cuda.Event`."""

    def synchronize(self) -> None:
        """Wait until the device is there."""
        ...


class Lead:
    """Holds the host up where the device has more than MOST_STEPS steps still to do. On a CPU there is no lead."""

    def __init__(self, device: torch.device, edge: Callable[[], Edge] | None = None) -> None:
        """`edge` makes one of what the device was asked for until now; None: as CUDA does."""
        self._edge = edge or (_recorded if device.type == "cuda" else None)
        self._ahead: deque[Edge] = deque()

    def step(self) -> None:
        """The device was asked for one step more."""
        if self._edge is None:
            return
        self._ahead.append(self._edge())
        if len(self._ahead) > MOST_STEPS:
            self._ahead.popleft().synchronize()


def _recorded() -> torch.cuda.Event:
    event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]  # which leaves the core to the loaders
    event.record()
    return event
