"""The append-only record of a run, on disk before anything acts on it; a resumed run replays it.

One JSON object a line; `search.record.events` has a class for each. The first one is the `run` event.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Self

from search.record.events import Event, Opening, parse
from search.record.run_state import RunState

FILE_NAME = "journal.jsonl"

Listener = Callable[[Event], None]
Clock = Callable[[], float]
log = logging.getLogger(__name__)
_warn_once = cache(log.warning)  # a journal is read several times in the life of a process


def steady_clock(wall: Clock = time.time, monotonic: Clock = time.monotonic) -> Clock:
    """Return a clock that starts at the wall clock's time, in seconds since 1970, and that nobody sets afterwards."""
    ahead = wall() - monotonic()
    return lambda: ahead + monotonic()


class Journal:
    """Appends events to a file, applies them to the state of the run, then calls the listeners."""

    def __init__(
        self,
        path: Path,
        listeners: Sequence[Listener] = (),
        clock: Clock | None = None,
        run_state: RunState | None = None,
    ) -> None:
        """`run_state`: of the events that the file has; None: it has none."""
        self.run_state = run_state or RunState()
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        self._listeners = listeners
        self._clock = clock or steady_clock()
        # a line that a kill cut short was never acted upon; it must not swallow the next line
        whole, newline, rest = path.read_bytes().rpartition(b"\n")
        if rest:
            try:
                parse(rest)
                os.write(self._file, b"\n")
            except ValueError:
                os.ftruncate(self._file, len(whole) + len(newline))

    def append(self, event: str, **fields: Any) -> Event:
        """Write one event through to the disk, then apply it and call the listeners; return it as it will be read.

        Raises:
            OSError: the disk is full, or the file is gone; nothing may act on this event.
            ValueError: it is no event that could be read again.
        """
        record = {"event": event, "time": self._clock(), **fields}
        line = json.dumps(_without_nan(record), separators=(",", ":"), allow_nan=False).encode()
        parsed = parse(line)
        line += b"\n"
        size = os.fstat(self._file).st_size
        try:  # the whole line, or nothing
            if not os.path.samestat(os.stat(self._path), os.fstat(self._file)):
                raise FileNotFoundError(2, "replaced while the run wrote to it")
            rest = memoryview(line)
            while rest:
                rest = rest[os.write(self._file, rest) :]
            os.fsync(self._file)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._file, size)
            what = f"{error.strerror}: {len(line)} bytes more are needed"
            raise OSError(error.errno, what, str(self._path)) from error
        self.run_state.apply(parsed)
        for listener in self._listeners:
            listener(parsed)
        return parsed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._file)


def read_journal(path: Path) -> list[Event]:
    """Return all whole events of a journal, in order; damaged lines are left out, with a warning that names the first.

    Raises:
        OSError: there is no such file.
        ValueError: the file does not begin with a `run` event.
    """
    events: list[Event] = []
    faults: dict[int, str] = {}
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not line:
            continue
        try:
            event = parse(line)
            if events and isinstance(event, Opening):
                raise ValueError("a run begins once")
            events.append(event)
        except ValueError as error:
            faults[number] = str(error)
    if not events or not isinstance(events[0], Opening):
        why = f"line {min(faults)}: {faults[min(faults)]}" if faults else "no event" if not events else "no run event"
        raise ValueError(f"{path}: not the journal of a run: {why}")
    if faults:
        first = min(faults)
        more = f", and {len(faults) - 1} more that are damaged" if len(faults) > 1 else ""
        _warn_once("%s", f"{path}:{first}: {faults[first]}; this line is left out{more}")
    return events


def _without_nan(value: Any) -> Any:
    """Replace NaN and infinity, which JSON lacks, by null, which reads as "not measured"."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return value
