"""Floating-point operations of training, counted operator by operator on the meta device."""

from functools import cache

import torch
from torch.utils.flop_counter import FlopCounterMode

from trainables.network.vgg import vgg19
from trainables.settings import Settings

BATCH = 2  # normalisation needs more than one image


def training_flops_per_image(settings: Settings, num_classes: int) -> int:
    """Count forward and backward of convolutions and matrix products; a multiplication and an addition count as two.

    The count is that of the library's convolutions for every `conv_kernel`: another kernel does the same work in other
    steps, and its gain must appear as a higher rate.
    """
    return _counted(num_classes, settings.width, settings.head)


@cache
def _counted(num_classes: int, width: float, head: str) -> int:
    with torch.device("meta"):
        network = vgg19(num_classes, width=width, head=head)  # type: ignore[arg-type]
        images = torch.empty(BATCH, 3, 32, 32)
    counter = FlopCounterMode(display=False)
    with counter, torch.enable_grad():
        network(images).sum().backward()
    return int(counter.get_total_flops()) // BATCH
