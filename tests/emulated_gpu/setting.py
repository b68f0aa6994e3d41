"""Settings of a process on emulated devices: no cuDNN, and measurements that take moments: they measure the CPU."""

from __future__ import annotations

import torch

from trainables.machine import ceilings
from trainables.measure import probe_end


def prepare() -> None:
    """Switch cuDNN off, which is not emulated, and make ceilings and probes short: the CPU computes them."""
    torch.backends.cudnn.enabled = False
    ceilings.SECONDS = 0.01
    ceilings.MATRIX_SIZES["cuda"] = (64,)
    ceilings.CONVOLUTION["cuda"] = (2, 8, 8)
    ceilings.COPIED_FLOATS["cuda"] = 2**12
    probe_end.PROBE_SECONDS, probe_end.MAX_PROBE_SECONDS = 1.0, 2.0
