"""The live view of a run in the terminal; where output is no terminal, one line per event worth a line."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TextIO, cast

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from search.record.history import History, Trial
from search.record.journal import Event
from search.terminal.trial_rows import front_title
from search.terminal.view import View
from search.text.wording import count, duration, metric_label, number, short_settings


class Progress:
    """Shows a run as its journal is written. Hand it to the Journal as a listener, and use it as a context manager.

    Nothing that goes wrong with the output reaches the run. `clock`: seconds since 1970.
    """

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.time) -> None:
        self._console = console or Console()
        self._console.file = cast(TextIO, _Unbreakable(self._console.file))
        self._clock = clock
        self._history = History()
        self._view = View(self._history)
        self._lock = threading.Lock()  # the view is redrawn from a thread of its own
        self._live: Live | None = None
        self._closed = False

    def __call__(self, event: Event) -> None:
        """Take in an event and show what it changes."""
        with self._lock:
            self._history.apply(event)
            self._view.forget()
            line = None if self._live or self._closed else event_line(self._history, event)
        if line is not None:
            self.announce(line)

    def announce(self, text: str) -> None:
        """Print something for people: above the live view where there is one, between words, else as one line."""
        self._console.print(text, soft_wrap=self._live is None, highlight=False, markup=False)

    def replay(self, events: Iterable[Event]) -> None:
        """Take in what happened before a resume, without a word."""
        with self._lock:
            for event in events:
                self._history.apply(event)
            self._view.forget()

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._live = Live(console=self._console, refresh_per_second=2, get_renderable=self._drawn)
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Leave the last state on the screen; what is printed next stands below it, and no event below that."""
        self._closed = True
        if self._live is not None:
            self._live.stop()  # draws once more
            self._live = None
            self.announce("")

    def _drawn(self) -> RenderableType:
        try:
            with self._lock:
                options = self._console.options
                return self._view.draw(self._clock(), options.max_width, self._console.height, options.ascii_only)
        except Exception as error:  # a fault of ours in drawing is no reason to end a run of hours
            return Text(f"the view cannot be drawn: {error!r}")


def event_line(history: History, event: Event) -> str | None:
    """What to print for an event where nothing can be redrawn; None: nothing."""
    trial = history.trials.get(event.get("trial_id", ""))
    match event["event"]:
        case "run":
            return f"{event['name']}: {event['data']['description']}"
        case "resume":
            return f"{history.info['name']} goes on: {count(len(history.trials), 'trial')} so far"
        case "retry":
            return f"{event['trial_id']} is tried again: {event['reason']}"
        case "start" if trial is not None and not _prepares(history, trial):
            return f"{trial.trial_id} begins{_settings(history, trial)}"
        case "measurement" if trial is not None and event["epoch"] < history.budget["epochs"] and trial.kind != "probe":
            return f"{trial.trial_id} epoch {event['epoch']}/{history.budget['epochs']}{_told(history, trial.metrics)}"
        case "finish" if trial is not None:
            return f"{_ended(history, trial)}{_settings(history, trial)}"
        case "repeat":
            return f"{event['trial_id']} probed again{_told(history, event['metrics'])}"
        case "test":
            return f"{event['trial_id']} on the test set{_told(history, event['metrics'], event['metrics'])}"
        case "end":
            states = ", ".join(f"{total} {state}" for state, total in history.counts().items() if total)
            return f"ended: {event['reason']}; {states or 'no trial'}; {front_title(history, None)}"
        case _:
            return None


def _ended(history: History, trial: Trial) -> str:
    name = f"probe {trial.trial_id}" if _prepares(history, trial) else trial.trial_id
    after = "" if trial.kind == "probe" else f" after {count(trial.epochs, 'epoch')}"
    reason = f": {trial.reason}" if trial.reason else ""
    told = _told(history, trial.metrics)
    return (
        f"{name} {trial.state}{after}, {duration(trial.seconds)}{reason}{told.replace(':', ';', 1) if reason else told}"
    )


def _prepares(history: History, trial: Trial) -> bool:
    """Whether it is a probe that only finds the settings to train with."""
    return trial.kind == "probe" and not history.probes


def _settings(history: History, trial: Trial) -> str:
    return f" [{short_settings(trial.config, history.parameters())}]"


def _told(history: History, metrics: Mapping[str, float | None], names: Iterable[str] | None = None) -> str:
    """The objectives, or the metrics of these names, as far as they were measured."""
    names = [o.metric for o in history.objectives] if names is None else names
    data = history.info["data"]
    found = {name: math.nan if (value := metrics.get(name)) is None else value for name in names}
    told = [f"{metric_label(name, data)} {number(x)}" for name, x in found.items() if math.isfinite(x)]
    return f": {', '.join(told)}" if told else ""


class _Unbreakable:
    """A text file whose writes never fail: a closed pipe or a poor encoding must not end a run of hours."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, text: str) -> int:
        """Write what can be written."""
        try:
            self._file.write(text)
        except UnicodeEncodeError as error:
            self._file.write(text.encode(error.encoding, "replace").decode(error.encoding))
        except (OSError, ValueError) as error:  # ValueError: the file was closed
            self._give_up(error)
        return len(text)

    def flush(self) -> None:
        """Flush what can be flushed."""
        try:
            self._file.flush()
        except (OSError, ValueError) as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        """Nobody reads any more; what is still buffered must not fail when Python exits (Note on SIGPIPE, its docs)."""
        if isinstance(error, BrokenPipeError):
            with suppress(OSError), open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), self._file.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
