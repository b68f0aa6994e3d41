"""The devices that a process trains on: one, or all that it sees."""

from __future__ import annotations

import torch

from trainables.settings import Settings


def devices_of(settings: Settings, device: torch.device) -> list[torch.device]:
    """`device` first, which is the process's own; the others only where one process has several."""
    if settings.strategy != "data_parallel" or device.type != "cuda":
        return [device]
    others = (torch.device("cuda", i) for i in range(torch.cuda.device_count()))
    return [device, *(other for other in others if other != device)]
