"""Notices that Ray is gone, for which Ray itself may wait a minute and then end the process without a word.

And ends its processes, of which some would look half a minute for those that started them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import psutil

T = TypeVar("T")

EVERY_SECONDS = 1.0
KNOCK_SECONDS = 2.0
KNOCKS = 3  # in vain, one after another

_groups: list[int] = []  # which `in_own_group` began


@contextlib.contextmanager
def watched(question: Callable[[], T | None], then: Callable[[T], None]) -> Iterator[None]:
    """Ask all the while, in a thread, and do what is to be done once there is an answer."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(EVERY_SECONDS):
            answer = question()
            if answer is not None and not over.is_set():
                then(answer)
                return

    thread = threading.Thread(target=watch, daemon=True, name="watch")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class Lost:
    """Why a cluster is gone: one of its processes that are ours has ended, or nobody listens at its address."""

    def __init__(self, ours: dict[str, psutil.Process], address: tuple[str, int] | None) -> None:
        """`ours`: by what they are called for people."""
        self._ours, self._address = ours, address
        self._vain = 0

    def __call__(self) -> str | None:
        """None: it is there."""
        for name, process in self._ours.items():
            if not _lives(process):
                return f"Ray is gone: its {name} (process {process.pid}) has ended"
        if self._address is None:
            return None
        self._vain = 0 if _listens(*self._address) else self._vain + 1
        host, port = self._address
        return f"Ray is gone: nobody answers at {host}:{port}" if self._vain >= KNOCKS else None


def in_own_group(popen: Callable[..., subprocess.Popen[Any]]) -> Callable[..., subprocess.Popen[Any]]:
    """Start processes so that a signal to all of a terminal is for us alone, and none that they start can be lost."""

    def start(*arguments: Any, **options: Any) -> subprocess.Popen[Any]:
        process = popen(*arguments, process_group=0, **options)
        _groups.append(process.pid)
        return process

    return start if sys.platform == "linux" else popen  # elsewhere Ray ends what a killed driver leaves by its group


def end_children() -> None:
    """End all processes that this one started, and theirs."""
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            child.kill()
    for group in _groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


def _lives(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _listens(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), KNOCK_SECONDS).close()
    except OSError:
        return False
    return True
