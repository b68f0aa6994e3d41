"""Setting of the C library's allocator to keep freed memory, because each step requests the same blocks again.

If blocks are returned to the system, the kernel clears and maps their pages one by one on the next request: 5,000 to
25,000 page faults per step of VGG19 at batch 128 on two cores.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Iterator
from typing import Literal

Allocator = Literal["system", "retain"]

# Options of glibc's mallopt, from malloc.h.
TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4
RETAIN = {MMAP_MAX: 0, TRIM_THRESHOLD: -1}  # all blocks in the heap, which is never trimmed
# The values that glibc itself reaches after a large block was freed; its initial thresholds cannot be restored.
SYSTEM = {MMAP_MAX: 65536, MMAP_THRESHOLD: 32 * 2**20, TRIM_THRESHOLD: 64 * 2**20}


@contextlib.contextmanager
def allocating(allocator: Allocator) -> Iterator[None]:
    """Use this allocator for host memory. No effect if the C library is not glibc."""
    if allocator == "system" or not _set_options(RETAIN):
        yield
        return
    try:
        yield
    finally:
        _set_options(SYSTEM)


def return_free_memory() -> None:
    """Return the pages of freed blocks to the system, also those that `retain` keeps."""
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError, OSError):  # not glibc
            ctypes.CDLL(None).malloc_trim(0)


def _set_options(options: dict[int, int]) -> bool:
    """Set the options; return True if the C library accepted all of them."""
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return [mallopt(option, value) for option, value in options.items()] == [1] * len(options)
