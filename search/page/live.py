"""The page of a run that goes on: written anew as its journal grows, now and then, by a thread that can hurt nobody."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from search.page.page import try_to_write
from search.record.journal import FILE_NAME as JOURNAL
from search.results import load

LEAST_SECONDS = 10.0  # between two pages
MOST_SHARE = 0.02  # of the time may be spent on them: a page of many trials takes long, and is written seldom


def seconds_to_wait(took: float) -> float:
    """Until the next page, after one that took so long."""
    return max(LEAST_SECONDS, took / MOST_SHARE)


class LivePage:
    """Writes the page of the run in `folder` while this context is open. The last one is the caller's to write.

    What goes wrong is a warning, once, and ends nothing.
    """

    def __init__(self, folder: Path, pause: Callable[[float], float] = seconds_to_wait) -> None:
        """`pause`: seconds to wait after a page that took so many."""
        self._folder = folder
        self._pause = pause
        self._failed = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="page", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        written, wait = -1, self._pause(0.0)
        while not self._ended.wait(wait):
            size = journal_size(self._folder)
            if size in (0, written):
                continue
            began = time.perf_counter()
            self._failed |= not try_to_write(partial(load, self._folder), going_on=True, quietly=self._failed)
            written, wait = size, self._pause(time.perf_counter() - began)


def journal_size(folder: Path) -> int:
    """Bytes; -1: there is none yet."""
    try:
        return (folder / JOURNAL).stat().st_size
    except OSError:
        return -1
