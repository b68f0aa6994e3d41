"""Counters of the emulated CUDA runtime in this process."""

from __future__ import annotations

import ctypes
import os

import pytest

from tests.emulated_gpu.libraries import RUNTIME

COUNTERS = (  # in the order of the runtime's `st`
    *("launches", "captured", "stray", "waits", "forbidden"),
    *("replays", "allocations", "pageable_copies", "collectives"),
)

is_emulated = RUNTIME in os.environ.get("LD_PRELOAD", "")
on_emulated_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not is_emulated, reason="needs the emulated GPU: test_one_device.py starts it"),
]


def counters() -> dict[str, int]:
    """Return the runtime's counters: `stray` are launches beside a capture under way, `forbidden` calls within one."""
    read = ctypes.CDLL(None).nullcuda_stats
    read.restype = ctypes.POINTER(ctypes.c_long)
    return dict(zip(COUNTERS, read()[: len(COUNTERS)], strict=True))
