"""Signals that ask a run to end: recorded when they come, raised where that is safe."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import FrameType, TracebackType
from typing import Self

from search.execution.ray_watchdog import end_children, watchdog
from search.record.run_end import BY_SIGNAL

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LAST_ACT_SECONDS = 5.0  # where Ray is still starting
SHOW_CURSOR = "\x1b[?25h"  # which the live view hides


class Interrupted(BaseException):
    """Request by a signal to end the run. It is no `Exception`, so that no handler takes it for a failure."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"{BY_SIGNAL}{signal.Signals(signal_number).name}")
        self.exit_code = 128 + signal_number


class Interrupts:
    """Signal handling of a run: a signal raises Interrupted at once, or in `check` when `deferred`.

    A second signal ends the process at once, with `exit_message` on the standard error. A signal that the process
    ignored before, such as SIGHUP under nohup, stays ignored.

    A run that uses Ray defers: Ray's compiled code turns an exception of a signal handler into a SystemError.
    """

    def __init__(self) -> None:
        self.deferred = False
        self.exit_message = ""
        self._leaving: threading.Timer | None = None
        self._number: int | None = None
        self._heard, self._written = socket.socketpair()  # each signal's number, as soon as the process has it
        self._heard.setblocking(False)
        self._written.setblocking(False)
        self._before = {number: signal.getsignal(number) for number in SIGNALS}

    def __enter__(self) -> Self:
        self.install()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._leaving is not None:
            self._leaving.cancel()
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(-1)
        self._heard.close()
        self._written.close()

    def install(self) -> None:
        """Take the signals over, also from Ray, whose own handlers end the process with a stack trace."""
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_IGN if handler == signal.SIG_IGN else self._note)
        signal.set_wakeup_fd(self._written.fileno(), warn_on_full_buffer=False)

    def ignore(self) -> None:
        """Ignore further signals, while the last lines are written."""
        for number in SIGNALS:
            signal.signal(number, lambda *received: None)  # SIG_IGN would pass on to the command of --on-end

    @property
    def exit_code(self) -> int | None:
        """Exit code of a run that a signal has ended, or None if no signal came."""
        number = self._came()
        return None if number is None else 128 + number

    def ending_at_once(self, last_act: Callable[[], object]) -> AbstractContextManager[None]:
        """End the process at a signal while Ray starts; the main thread may not handle it for half a minute."""

        def leave(exit_code: int) -> None:
            self.exit_within(LAST_ACT_SECONDS, exit_code)
            with contextlib.suppress(Exception):
                last_act()
            _leave(exit_code)

        return watchdog(lambda: self.exit_code, leave)

    @contextlib.contextmanager
    def attributed_to_signal(self) -> Iterator[None]:
        """Attribute failures after a signal to it: a signal to all processes of a terminal also ends those of Ray.

        Raises:
            Interrupted: a signal came, then a fault.
        """
        try:
            yield
        except Exception as error:
            if (number := self._came()) is not None:
                raise Interrupted(number) from error
            raise

    def exit_within(self, seconds: float, exit_code: int) -> None:
        """Limit the time of the shutdown, because Ray may wait for long when parts of it are gone."""
        self._leaving = threading.Timer(seconds, _leave, [exit_code])
        self._leaving.daemon = True
        self._leaving.start()

    def check(self) -> None:
        """Raise what was noted.

        Raises:
            Interrupted: a signal came.
        """
        if self._number is not None:
            raise Interrupted(self._number)

    def _came(self) -> int | None:
        """Return the number of the signal that came, before the main thread, which may wait in Ray, handles it."""
        if self._number is not None:
            return self._number
        with contextlib.suppress(BlockingIOError):
            heard = self._heard.recv(4096, socket.MSG_PEEK)
            return next((number for number in heard if number in SIGNALS), None)
        return None

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._number is not None:
            with contextlib.suppress(OSError):
                shown = SHOW_CURSOR if sys.stderr.isatty() else ""
                os.write(sys.stderr.fileno(), f"{shown}{self.exit_message}".encode())
            _leave(128 + number)
        self._number = number
        if not self.deferred:
            self.check()


def _leave(exit_code: int) -> None:
    """End the process at once."""
    with contextlib.suppress(Exception):
        end_children()  # Ray's would look for this process a while
    os._exit(exit_code)
