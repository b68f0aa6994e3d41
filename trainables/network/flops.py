"""How many floating-point operations training takes, counted operator by operator on the meta device."""

from __future__ import annotations

from functools import cache

import torch
from torch.utils.flop_counter import FlopCounterMode

from trainables.network.vgg import vgg19
from trainables.settings import Settings

BATCH = 2  # normalisation wants more than one picture


def training_flops_per_image(settings: Settings, num_classes: int) -> int:
    """Forward and backward, a multiplication and an addition as two; of convolutions and matrix products alone.

    Counted with the library's convolutions whatever `conv_kernel` is: another kernel does the same work in other
    steps, and its gain must show as a higher rate.
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
