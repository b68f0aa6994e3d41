"""DistributedDataParallel: a process per device, each with the whole network; gradients are averaged as they arise.

Batch normalisation sees each rank's share of the batch only; the running statistics that count are rank 0's.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trainables.settings import Settings
from trainables.step import Step


def layout(num_devices: int) -> int:
    """A process per device."""
    return num_devices


def build(model: nn.Module, settings: Settings, device: torch.device) -> Step:
    """The plain step with gradients averaged over the ranks. `torch.distributed` is initialised."""
    devices = [device.index or 0] if device.type == "cuda" else None
    forward = DistributedDataParallel(model, device_ids=devices, gradient_as_bucket_view=True)
    return _DdpStep(model, forward, settings, device)


class _DdpStep(Step):
    def gather(self) -> None:
        for buffer in self.model.buffers():
            dist.broadcast(buffer, src=0)
