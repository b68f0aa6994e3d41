"""Lock for work that one process of this machine does for all; the hang detector knows that the others wait."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from trainables.contract import waiting


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock at `path` and create its folder; the lock ends with the process.

    Raises:
        OSError: the folder cannot be written.
    """
    from filelock import FileLock  # a dependency of torch

    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    with waiting():
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
