"""Lock on the folder of a run, held by one process at a time; the system releases it if the process dies."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

FILE_NAME = ".owner"  # names the process for people; only the lock tells whether it still runs
ATTEMPTS = 3
SECONDS_BETWEEN = 0.05


class RunLockedError(Exception):
    """Another process writes to this folder; the message names it."""


def is_locked(folder: Path) -> bool:
    """Return whether a process holds the lock on a folder. On another machine that depends on the file system."""
    try:
        with open(folder / FILE_NAME, encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no such file, no permission, or a file system without locks
        return False
    return False


@contextlib.contextmanager
def lock_run(folder: Path) -> Iterator[None]:
    """Hold the lock on a folder.

    Raises:
        RunLockedError: another process holds it.
        OSError: the folder cannot be written to.
    """
    with open(folder / FILE_NAME, "a+", encoding="utf-8") as file:
        if not _lock(file):
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise RunLockedError(f"{folder}: {holder} is running it; wait for its end, or stop it")
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        yield


def _lock(file: TextIO) -> bool:
    """Lock the file; False: another process holds the lock. `is_locked` holds it for an instant: try again."""
    for _ in range(ATTEMPTS):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                return True  # a file system without locks: better to run unguarded than not at all
            time.sleep(SECONDS_BETWEEN)
        else:
            return True
    return False
