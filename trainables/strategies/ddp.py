"""DistributedDataParallel: one process per device with the whole network; gradients are averaged during backward.

Batch normalisation sees only each rank's share of the batch unless it is synchronised; the running statistics are rank
0's.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from trainables.graphs import CapturedStep, capture_stream
from trainables.sample_shape import SampleShape
from trainables.settings import Settings
from trainables.stages import Timeline
from trainables.step import Step
from trainables.strategy_table import captures


def build(model: nn.Module, settings: Settings, shape: SampleShape, device: torch.device) -> Step:
    """Return the step that averages gradients over the ranks. Needs `torch.distributed` initialised."""
    if not captures(settings, device.type):
        return _DdpStep(model, _wrapped(model, settings, device), settings, device)
    stream = capture_stream(device)
    with torch.cuda.stream(stream):  # gradients are accumulated on the stream on which DDP first saw the weights
        forward = _wrapped(model, settings, device)
    return _CapturedDdpStep(model, forward, settings, device, stream)


def _wrapped(model: nn.Module, settings: Settings, device: torch.device) -> DistributedDataParallel:
    own_code = settings.workload.endswith(".py")  # a user's file may use other parameters in each step, and buffers
    forward = DistributedDataParallel(
        model,
        device_ids=[device.index or 0] if device.type == "cuda" else None,
        gradient_as_bucket_view=True,
        # on CPUs, three ranks would add in another order; a static graph communicates in its first pass
        static_graph=not own_code and device.type == "cuda" and settings.accumulation_steps == 1,
    )
    if not own_code:  # training reads no running statistics; those of rank 0 are sent by `gather`
        forward.broadcast_buffers = False  # as an argument it is deprecated in PyTorch 2.15
    return forward


class _DdpStep(Step):
    def _unsynchronised(self) -> AbstractContextManager[None]:
        return cast(DistributedDataParallel, self._forward).no_sync()

    def _backward(self, loss: Tensor, timeline: Timeline) -> None:
        """Run backward; only the communication that is left after the last gradient counts as `communicate`."""
        world_size = dist.get_world_size()  # DDP divides the sum of the gradients by it
        first = next(p for p in self.model.parameters() if p.requires_grad)  # its gradient is computed last
        handle = first.register_post_accumulate_grad_hook(lambda _: timeline.mark("backward"))  # type: ignore[no-untyped-call]
        torch.autograd.backward(loss * world_size)
        timeline.mark("communicate")
        handle.remove()


class _CapturedDdpStep(_DdpStep, CapturedStep):
    """The same step as a CUDA graph, which contains the communication."""
