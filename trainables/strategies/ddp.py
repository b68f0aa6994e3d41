"""DistributedDataParallel: one process per device with the whole network; gradients are averaged during backward.

Batch normalisation sees only each rank's share of the batch unless it is synchronised; the running statistics are rank
0's.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from trainables.contract import InfeasibleError
from trainables.sample_shape import SampleShape
from trainables.settings import Settings
from trainables.stages import Timeline
from trainables.step import Step


def build(model: nn.Module, settings: Settings, shape: SampleShape, device: torch.device) -> Step:
    """Return the step that averages gradients over the ranks. Needs `torch.distributed` initialised.

    Raises:
        InfeasibleError: `cuda_graphs` is set.
    """
    if settings.cuda_graphs:
        raise InfeasibleError("cuda_graphs: only with strategy single")
    devices = [device.index or 0] if device.type == "cuda" else None
    forward = DistributedDataParallel(model, device_ids=devices, gradient_as_bucket_view=True)
    return _DdpStep(model, forward, settings, device)


class _DdpStep(Step):
    def _backward(self, loss: Tensor, timeline: Timeline) -> None:
        """Run backward; only the communication that is left after the last gradient counts as `communicate`."""
        world_size = dist.get_world_size()  # DDP divides the sum of the gradients by it
        first = next(self.model.parameters())  # its gradient is computed last
        handle = first.register_post_accumulate_grad_hook(lambda _: timeline.mark("backward"))  # type: ignore[no-untyped-call]
        torch.autograd.backward(loss * world_size)
        timeline.mark("communicate")
        handle.remove()
