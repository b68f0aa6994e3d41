"""Background thread that rewrites the page of a running run as its journal grows. It cannot disturb the run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from search.page.page import try_to_write
from search.record.dataframes import Run
from search.record.journal import FILE_NAME as JOURNAL
from search.record.run_state import RunState

MIN_SECONDS = 10.0  # between two pages
MAX_SHARE = 0.02  # of the time spent on writing pages: a page of many trials takes long, and is written rarely


def seconds_to_wait(took: float) -> float:
    """Return the pause after a page that took this long to write."""
    return max(MIN_SECONDS, took / MAX_SHARE)


class LivePage:
    """Context that rewrites the page of the run in `folder` while it is open. The caller writes the final page.

    The first failure is logged as a warning; no failure ends the run.
    """

    def __init__(
        self,
        folder: Path,
        run_state: RunState,
        pause: Callable[[float], float] = seconds_to_wait,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`pause`: the seconds to wait after a page, by the seconds that it took. `clock`: seconds since 1970."""
        self._folder, self._run_state, self._pause = folder, run_state, pause
        self._clock = clock
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="page", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        failed, written, wait = False, -1, self._pause(0.0)
        while not self._ended.wait(wait):
            size = journal_size(self._folder)
            if size == written or self._run_state.opening is None:
                continue
            began = time.perf_counter()
            failed |= not try_to_write(
                lambda: Run(self._folder, self._run_state.snapshot()), self._clock(), quietly=failed
            )
            written, wait = size, self._pause(time.perf_counter() - began)


def journal_size(folder: Path) -> int:
    """Size of the journal in bytes; -1: there is none yet."""
    try:
        return (folder / JOURNAL).stat().st_size
    except OSError:
        return -1
