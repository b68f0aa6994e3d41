"""A strategy and a parameter from outside of the package: equal weights on all ranks, and a scale of the gradients."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainables.sample_shape import SampleShape
from trainables.settings import parameter
from trainables.stages import Timeline
from trainables.step import Step
from trainables.strategy_table import MemoryShare, StrategyRow
from trainables.vgg19_settings import Vgg19Settings


@dataclass(frozen=True, kw_only=True)
class ScaledSettings(Vgg19Settings):
    gradient_scale: float = parameter(1.0, "factor of all gradients", low=0.0, affects="trained")


ROW = StrategyRow(
    help="each gradient reduced by a message of its own",
    module=__name__,
    memory_shares=lambda settings, processes: [MemoryShare(messages=0.5)] * processes,
    unsupported={"cuda_graphs": True},
)


def build(model: nn.Module, settings: Vgg19Settings, shape: SampleShape, device: torch.device) -> Step:
    return _Step(model, model, settings, device)


class _Step(Step):
    def _backward(self, loss: Tensor, timeline: Timeline) -> None:
        super()._backward(loss * getattr(self._settings, "gradient_scale", 1.0), timeline)
        for weights in self.model.parameters():
            dist.all_reduce(weights.grad)
        timeline.mark("communicate")
