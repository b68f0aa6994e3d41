"""Floating-point operations of training, counted operator by operator on the meta device."""

from __future__ import annotations

from functools import cache

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from trainables.prediction.countable import Told, counted_or_none, log
from trainables.sample_shape import SampleShape
from trainables.settings import Settings
from trainables.workload import workload_of

BATCH = 2  # normalisation needs more than one sample


def training_flops_per_sample(settings: Settings, shape: SampleShape, told: Told = log.info) -> int | None:
    """Count forward and backward of convolutions and matrix products; a multiplication and an addition count as two.

    The count is that of the network before `Workload.tune`: another kernel does the same work in other steps, and its
    gain must appear as a higher rate. None: the network cannot be counted; `told` gets the reason.
    """
    workload = workload_of(settings)
    return counted_or_none(lambda: _counted(workload.plain(settings, "cpu"), shape), settings, told)


@cache
def _counted(settings: Settings, shape: SampleShape) -> int:
    with torch.device("meta"):
        network = workload_of(settings).network(settings, shape)
    inputs, _ = shape.empty(BATCH, "meta")
    counter = FlopCounterMode(display=False)
    with counter, torch.enable_grad():
        outputs = [x for x in tree_leaves(network(inputs)) if isinstance(x, torch.Tensor) and x.requires_grad]
        torch.autograd.backward(outputs, [torch.ones_like(x) for x in outputs])
    return int(counter.get_total_flops()) // BATCH
