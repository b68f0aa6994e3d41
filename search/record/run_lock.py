"""Lock on the folder of a run, held by one process at a time; the system releases it if the process dies."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path

FILE_NAME = ".owner"  # names the process for people; only the lock tells whether it still runs


class RunLockedError(Exception):
    """Another process writes to this folder; the message names it."""


@contextlib.contextmanager
def lock_run(folder: Path) -> Iterator[None]:
    """Hold the lock on a folder.

    Raises:
        RunLockedError: another process holds it.
        OSError: the folder cannot be written to.
    """
    with open(folder / FILE_NAME, "a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                file.seek(0)
                raise RunLockedError(f"{folder}: {file.read().strip() or 'another process'} is running it") from None
            # a file system without locks: better to run unguarded than not at all
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        yield
