"""Devices that a process trains on: one, or all that are visible to it."""

from __future__ import annotations

import torch

from trainables.settings import Settings
from trainables.strategy_table import STRATEGIES


def devices_of(settings: Settings, device: torch.device) -> list[torch.device]:
    """Return the process's own `device` first, then the others if one process uses several."""
    if not STRATEGIES[settings.strategy].all_gpus or device.type != "cuda":
        return [device]
    others = (torch.device("cuda", i) for i in range(torch.cuda.device_count()))
    return [device, *(other for other in others if other != device)]
