"""Whether loader processes can pass batches through /dev/shm: one that is too small ends them by a bus error."""

from __future__ import annotations

import os
import sys
from pathlib import Path

PLACE = Path("/dev/shm")


def fits(size: int) -> bool:
    """Whether so many bytes are free there."""
    if not sys.platform.startswith("linux"):
        return True  # there shared memory has no folder
    try:
        found = os.statvfs(PLACE)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize >= size
