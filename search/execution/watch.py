"""Notices that Ray is gone, for which Ray itself may wait a minute and then end the process without a word."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import psutil

EVERY_SECONDS = 1.0
KNOCK_SECONDS = 2.0
KNOCKS = 3  # in vain, one after another


@contextlib.contextmanager
def watched(why_lost: Callable[[], str | None], then: Callable[[str], None]) -> Iterator[None]:
    """Ask `why_lost` all the while, in a thread, and do what is to be done once it has an answer."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(EVERY_SECONDS):
            why = why_lost()
            if why is not None and not over.is_set():
                then(why)
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


def end_children() -> None:
    """End all processes that this one started, and theirs."""
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            child.kill()


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
