"""One process, one device, all of its cores."""

from __future__ import annotations

import torch
from torch import nn

from trainables.settings import Settings
from trainables.step import Step


def layout(num_devices: int) -> int:
    """One process, however many devices there are."""
    return 1


def build(model: nn.Module, settings: Settings, device: torch.device) -> Step:
    """The plain step."""
    return Step(model, model, settings, device)
