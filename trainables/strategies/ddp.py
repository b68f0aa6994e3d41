"""DistributedDataParallel: a process per device, each with the whole network; gradients are averaged as they arise.

Batch normalisation sees each rank's share of the batch only, unless it is synchronised; the running statistics that
count are rank 0's.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from trainables.contract import InfeasibleError
from trainables.pictures.loaders import Share
from trainables.settings import Settings
from trainables.stages import Timeline
from trainables.step import Step


def share(rank: int, world_size: int) -> Share:
    """Each its own."""
    return Share(rank, world_size)


def build(model: nn.Module, settings: Settings, device: torch.device) -> Step:
    """The plain step with gradients averaged over the ranks. `torch.distributed` is initialised.

    Raises:
        InfeasibleError: a CUDA graph is asked for.
    """
    if settings.cuda_graphs:
        raise InfeasibleError("cuda_graphs: of strategy single only")
    devices = [device.index or 0] if device.type == "cuda" else None
    forward = DistributedDataParallel(model, device_ids=devices, gradient_as_bucket_view=True)
    return _DdpStep(model, forward, settings, device)


class _DdpStep(Step):
    def _backward(self, loss: Tensor, timeline: Timeline) -> None:
        """Gradients travel while others are computed; what is left to travel after the last one is communication."""
        world_size = dist.get_world_size()  # by which the sum of the gradients is divided
        first = next(self.model.parameters())  # its gradient comes last
        handle = first.register_post_accumulate_grad_hook(lambda _: timeline.mark("backward"))  # type: ignore[no-untyped-call]
        torch.autograd.backward(loss * world_size)
        timeline.mark("communicate")
        handle.remove()

    def gather(self) -> None:
        for buffer in self.model.buffers():
            dist.broadcast(buffer, src=0)
