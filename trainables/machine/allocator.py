"""The C library's allocator, told to keep what is freed: a step asks again for the same blocks.

Returned to the system, each block comes back as pages that the kernel has to clear and map one by one: 5,000 to 25,000
page faults a step of VGG19 at batch 128 on two cores.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Iterator
from typing import Literal

Allocator = Literal["system", "retain"]

# Of glibc's mallopt, from malloc.h.
TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4
RETAIN = {MMAP_MAX: 0, TRIM_THRESHOLD: -1}  # no block apart from the heap, which is never trimmed
# What glibc comes to by itself once a large block was freed; its first thresholds cannot be had back.
SYSTEM = {MMAP_MAX: 65536, MMAP_THRESHOLD: 32 * 2**20, TRIM_THRESHOLD: 64 * 2**20}


@contextlib.contextmanager
def allocating(allocator: Allocator) -> Iterator[None]:
    """Host memory by this allocator. Without effect where the C library is not glibc."""
    if allocator == "system" or not _tuned(RETAIN):
        yield
        return
    try:
        yield
    finally:
        _tuned(SYSTEM)


def _tuned(options: dict[int, int]) -> bool:
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    answers = [mallopt(option, value) for option, value in options.items()]
    return answers == [1] * len(options)
