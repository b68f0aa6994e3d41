"""nn.DataParallel: one process, all GPUs that it sees; in each step the network is copied to all of them.

Each GPU gets a share of the batch, gradients are summed on the first one, which also keeps the optimizer: it has the
most to do and to hold. Batch normalisation sees each GPU's share; the running statistics that count are the first's.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainables.contract import InfeasibleError
from trainables.machine.devices import devices_of
from trainables.pictures.loaders import Share
from trainables.settings import Settings
from trainables.step import Step, autocast


def share(rank: int, world_size: int) -> Share:
    """All of it: the batch is cut behind the loader."""
    return Share()


def build(model: nn.Module, settings: Settings, device: torch.device) -> Step:
    """The plain step around copies of the network.

    Raises:
        InfeasibleError: there is no GPU.
    """
    if device.type != "cuda":
        raise InfeasibleError("strategy data_parallel: needs a CUDA device")
    copied = nn.DataParallel(_Autocast(model, settings, device), devices_of(settings, device))
    return Step(model, copied, settings, device)


class _Autocast(nn.Module):
    """In the precision asked for, which is a thread's own: each copy of the network runs in another one."""

    def __init__(self, model: nn.Module, settings: Settings, device: torch.device) -> None:
        super().__init__()
        self.model = model
        self._settings, self._device = settings, device

    def forward(self, images: Tensor) -> Tensor:
        with autocast(self._settings, self._device):
            logits: Tensor = self.model(images)
            return logits
