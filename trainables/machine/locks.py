"""Work that one process of this machine does for all: the others wait for it, and are known to wait."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from trainables.contract import waiting


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock at `path`, in a folder that is made for it; a process that dies lets go.

    Raises:
        OSError: the folder cannot be written.
    """
    from filelock import FileLock  # torch brings it

    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    with waiting():
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
