"""Loader processes of trainings that take turns in one process: they are stopped while their training has no turn.

They would take cores from the turns of others. Their buffers stay as they are, so a training goes on where it was.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Iterator


class PausedLoaders:
    """Child processes by the place of the training that started them."""

    def __init__(self) -> None:
        self._of: dict[int, list[multiprocessing.process.BaseProcess]] = {}

    @contextlib.contextmanager
    def turn(self, place: int) -> Iterator[None]:
        """Let the processes of one training run, and stop them and those that it starts meanwhile at the end."""
        self.resume(place)
        try:
            yield
        finally:
            self.pause(place)

    def resume(self, place: int = 0) -> None:
        """Let the processes of a training run again."""
        for process in self._of.pop(place, []):
            _send(process, signal.SIGCONT)

    def pause(self, place: int = 0) -> None:
        """Stop all processes that run; they belong to this training."""
        others = {process.pid for of_one in self._of.values() for process in of_one}
        self._of[place] = [each for each in multiprocessing.active_children() if each.pid not in others]
        for process in self._of[place]:
            _send(process, signal.SIGSTOP)

    def close(self) -> None:
        """Let all processes run again: one that is stopped does not hear that it is to end."""
        for place in list(self._of):
            self.resume(place)


def _send(process: multiprocessing.process.BaseProcess, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has just ended
        if process.pid is not None:
            os.kill(process.pid, number)
