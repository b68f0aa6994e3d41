"""nn.DataParallel: one process copies the network to all of its GPUs in each step.

Each GPU gets a share of the batch. The first GPU sums the gradients and keeps the optimizer, so it has the most work
and uses the most memory. Batch normalisation sees each GPU's share; the running statistics are the first GPU's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from trainables.contract import InfeasibleError
from trainables.machine.devices import devices_of
from trainables.sample_shape import SampleShape
from trainables.settings import Settings
from trainables.step import Step, autocast


def build(model: nn.Module, settings: Settings, shape: SampleShape, device: torch.device) -> Step:
    """Return the plain step around copies of the network.

    Raises:
        InfeasibleError: there is no GPU.
    """
    if device.type != "cuda":
        raise InfeasibleError("strategy data_parallel: needs a CUDA device")
    copied = nn.DataParallel(_Autocast(model, settings, device), devices_of(settings, device))
    return Step(model, copied, settings, device)


class _Autocast(nn.Module):
    """Network with autocast inside: autocast is set per thread, and each copy of the network runs in its own."""

    def __init__(self, model: nn.Module, settings: Settings, device: torch.device) -> None:
        super().__init__()
        self.model = model
        self._settings, self._device = settings, device

    def forward(self, inputs: Any) -> Any:
        with autocast(self._settings, self._device):
            return self.model(inputs)
