"""Devices that a process trains on: one, or all GPUs of its trial."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from trainables.settings import Settings
from trainables.strategy_table import STRATEGIES

_claimed: int | None = None  # GPUs of the trial in this process; None: all that are visible


@contextlib.contextmanager
def claimed_gpus(count: int) -> Iterator[None]:
    """Limit the devices of this process to `count` GPUs, which may be fewer than are visible; 0: no limit."""
    global _claimed
    before, _claimed = _claimed, count or None
    try:
        yield
    finally:
        _claimed = before


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished its work; a CPU has none left."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def devices_of(settings: Settings, device: torch.device) -> list[torch.device]:
    """Return the process's own `device` first, then the others if one process uses several."""
    if not STRATEGIES[settings.strategy].all_gpus or device.type != "cuda":
        return [device]
    others = [torch.device("cuda", i) for i in range(torch.cuda.device_count()) if i != device.index]
    return [device, *others][:_claimed]
