"""Watchdog for Ray itself, which may wait a minute when it is broken and then end the process without a message.

It also ends Ray's processes: some of them would look for their parent for half a minute.
"""

from __future__ import annotations

import contextlib
import logging
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

POLL_SECONDS = 1.0
CONNECT_TIMEOUT_SECONDS = 2.0
MAX_FAILED_CONNECTS = 3  # in a row
END_TIMEOUT_SECONDS = 5.0  # for processes, once they are killed

log = logging.getLogger(__name__)
_process_groups: list[int] = []  # started by `in_own_process_group`


@contextlib.contextmanager
def watchdog(
    question: Callable[[], T | None], react: Callable[[T], object], poll_seconds: float = POLL_SECONDS
) -> Iterator[None]:
    """Ask a question again and again, in a thread; call `react` with the first answer that is not None.

    A question that raises has no answer this time.
    """
    over = threading.Event()

    def watch() -> None:
        while not over.wait(poll_seconds):
            answer = None
            try:
                answer = question()
            except Exception:
                log.warning("a check failed", exc_info=True)
            if answer is not None and not over.is_set():
                react(answer)
                return

    thread = threading.Thread(target=watch, daemon=True, name="watchdog")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class RayLossCheck:
    """Finds out why a cluster is gone: one of our own processes of it has ended, or nothing listens at its address."""

    def __init__(self, own_processes: dict[str, psutil.Process], address: tuple[str, int] | None) -> None:
        """`own_processes`: by the name that messages use."""
        self._own_processes, self._address = own_processes, address
        self._failed_connects = 0

    def __call__(self) -> str | None:
        """Return the reason; None: the cluster is alive."""
        for name, process in self._own_processes.items():
            alive = False
            with contextlib.suppress(psutil.Error):
                alive = process.is_running() and process.status() != psutil.STATUS_ZOMBIE
            if not alive:
                return f"Ray is gone: its {name} (process {process.pid}) has ended"
        if self._address is None:
            return None
        host, port = self._address
        try:
            socket.create_connection((host, port), CONNECT_TIMEOUT_SECONDS).close()
            self._failed_connects = 0
        except OSError:
            self._failed_connects += 1
        return f"Ray is gone: nobody answers at {host}:{port}" if self._failed_connects >= MAX_FAILED_CONNECTS else None


def in_own_process_group(popen: Callable[..., subprocess.Popen[Any]]) -> Callable[..., subprocess.Popen[Any]]:
    """Let `popen` start process groups, so that terminal signals reach only this process and `end_children` all."""

    def start(*arguments: Any, **options: Any) -> subprocess.Popen[Any]:
        process = popen(*arguments, process_group=0, **options)
        _process_groups.append(process.pid)
        return process

    return start if sys.platform == "linux" else popen  # elsewhere Ray finds the processes of a dead driver by group


def end_children(timeout_seconds: float = 0.0) -> None:
    """Kill all descendants of this process, and wait up to `timeout_seconds` for their end."""
    children = psutil.Process().children(recursive=True)
    for child in children:
        with contextlib.suppress(psutil.Error):
            child.kill()
    for group in _process_groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    if timeout_seconds:
        psutil.wait_procs(children, timeout=timeout_seconds)
