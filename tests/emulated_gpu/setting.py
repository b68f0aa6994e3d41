"""Settings of a process on emulated devices: no cuDNN, and machine measurements that take milliseconds."""

from __future__ import annotations

import torch

from trainables.machine import ceilings


def prepare() -> None:
    """Switch cuDNN off, which is not emulated, and make the ceilings small: the CPU computes them."""
    torch.backends.cudnn.enabled = False
    ceilings.SECONDS = 0.01
    ceilings.MATRIX_SIZES["cuda"] = (64,)
    ceilings.CONVOLUTION["cuda"] = (2, 8, 8)
    ceilings.COPIED_FLOATS["cuda"] = 2**12
