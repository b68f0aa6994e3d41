"""The append-only record of a run, on disk before anything acts on it; a resumed run replays it.

One JSON object a line, with `event` and `time` (seconds since 1970) in each:

    run          what the run was asked to do, on which machine, with which versions: always the first line
    resume       the run goes on in a new process
    start        trial_id, config, kind
    measurement  trial_id, epoch (0: a probe), metrics, decision (continue or stop), seconds (of the trial so far)
    retry        trial_id, reason: the workers died, the trial goes on from its checkpoint
    finish       trial_id, state, reason, seconds (in the workers' hands), setup_seconds (waiting for workers), verdict
                 (what bound it and what would help, as `contract.Verdict`; null: nothing is known)
    repeat       trial_id, metrics: a probe of a point of the front, before it is published
    test         trial_id, metrics: what the test set says of a point of the front
    end          reason: why no further trial was started
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

FILE_NAME = "journal.jsonl"

Event = dict[str, Any]
Listener = Callable[[Event], None]


class Journal:
    """Appends events to a file, then tells the listeners."""

    def __init__(self, path: Path, listeners: Sequence[Listener] = ()) -> None:
        self._file = open(path, "a+b")  # noqa: SIM115 - closed by close()
        self._listeners = listeners
        self._end_torn_line()

    def append(self, event: str, **fields: Any) -> None:
        """Write one event through to the disk, then hand it to the listeners.

        Raises:
            OSError: the disk is full or gone; nothing may act on this event.
        """
        record: Event = {"event": event, "time": time.time(), **fields}
        line = json.dumps(_without_nan(record), separators=(",", ":"), allow_nan=False)
        self._file.write(line.encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        for listener in self._listeners:
            listener(record)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _end_torn_line(self) -> None:
        """A line that a kill cut short must not swallow the next one."""
        if self._file.seek(0, os.SEEK_END) == 0:
            return
        self._file.seek(-1, os.SEEK_END)
        if self._file.read(1) != b"\n":
            self._file.write(b"\n")


def read_journal(path: Path) -> list[Event]:
    """All whole events of a journal, in order. Lines that a kill cut short are left out.

    Raises:
        OSError: there is no such file.
        ValueError: the file does not begin with a `run` event.
    """
    events = [event for line in path.read_bytes().splitlines() if (event := _parse(line)) is not None]
    if not events or events[0]["event"] != "run":
        raise ValueError(f"{path}: not the journal of a run")
    return events


def _parse(line: bytes) -> Event | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None


def _without_nan(value: Any) -> Any:
    """JSON has no NaN and no infinity; in the journal they are null, which reads as "not measured"."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return value
