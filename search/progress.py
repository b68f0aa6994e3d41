"""The live view of a run in the terminal; where output is no terminal, one line per event worth a line."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self, TextIO, cast

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from search.history import History, Trial
from search.journal import Event
from search.wording import ARROWS, about, count, duration, half_width, metric_label, number, short_settings, spread

COLORS = {"running": "cyan", "complete": "green", "stopped": "yellow", "infeasible": "magenta", "failed": "red"}
MOST_TRIALS, MOST_FRONT = 6, 5
OTHER_LINES = 9  # of the view that are not rows of a table
NARROW = 60  # columns below which epochs, spreads and settings are left out


class Progress:
    """Shows a run as its journal is written. Hand it to the Journal as a listener, and use it as a context manager.

    Nothing that goes wrong with the output reaches the run. `clock`: seconds since 1970.
    """

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.time) -> None:
        self._console = console or Console()
        self._console.file = cast(TextIO, _Unbreakable(self._console.file))
        self._clock = clock
        self._history = History()
        self._lock = threading.Lock()  # the view is redrawn from a thread of its own
        self._live: Live | None = None

    def __call__(self, event: Event) -> None:
        """Take in an event and show what it changes."""
        with self._lock:
            self._history.apply(event)
            line = None if self._live else event_line(self._history, event)
        if line is not None:
            self.announce(line)

    def announce(self, text: str) -> None:
        """Print something for people, above the live view where there is one."""
        self._console.print(text, soft_wrap=True, highlight=False, markup=False)

    def replay(self, events: Iterable[Event]) -> None:
        """Take in what happened before a resume, without a word."""
        with self._lock:
            for event in events:
                self._history.apply(event)

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._live = Live(console=self._console, refresh_per_second=2, get_renderable=self._view)
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()  # draws once more: the last state stays on the screen
            self._live = None
            self.announce("")  # what is printed next stands apart

    def _view(self) -> RenderableType:
        with self._lock:
            return view(self._history, self._clock(), self._console.width, self._console.height)


@dataclass(frozen=True)
class Spent:
    """How much of the budget that will end first is spent."""

    text: str  # "9 of 24 trials"
    fraction: float
    seconds_left: float


def spent(history: History, now: float) -> Spent | None:
    """The budget that ends first at the pace so far; None while there is nothing to judge by.

    A trial under way counts for the part of its epochs that it has measured, a trial cut short as a whole one.
    """
    if not history.trials:
        return None
    budget = history.budget
    trials = history.counted()
    ended = [t for t in trials if t.state != "running"]
    epochs = sum(t.epochs for t in trials)
    parts = sum(t.epochs / budget["epochs"] for t in trials if t.state == "running")
    used = history.active_seconds(now)
    working = max(
        used - (next(iter(history.trials.values())).started_at - history.info["time"]), 0.0
    )  # Ray's start is not paid for again
    limits = (budget.get("trials"), history.info.get("grid_points"))
    most = min((limit for limit in limits if limit), default=None)
    amounts = {
        "trials": (len(ended) + parts, most, f"{len(ended)} of {most} trials"),
        "total_epochs": (epochs, budget.get("total_epochs"), f"{epochs} of {budget.get('total_epochs')} epochs"),
    }
    known = [
        Spent(text, min(done / limit, 1.0), max(limit - done, 0.0) * working / done)
        for done, limit, text in amounts.values()
        if limit and done
    ]
    if hours := budget.get("hours"):
        text = f"{count(len(ended), 'trial')}, {duration(used)} of {duration(hours * 3600)}"
        known.append(Spent(text, min(used / (hours * 3600), 1.0), max(hours * 3600 - used, 0.0)))
    return min(known, key=lambda each: each.seconds_left, default=None)


def view(history: History, now: float, width: int, height: int) -> RenderableType:
    """The whole view, at most `height` lines of at most `width` columns."""
    if not history.info:
        return Text("starting")
    rows = max(height - OTHER_LINES, 2)
    front = history.front()[: max(min(MOST_FRONT, rows // 2), 1)]
    last = _last(history, max(min(MOST_TRIALS, rows - len(front)), 1))
    columns, gap = _columns(history, width), 2 if width >= NARROW else 1
    return Group(
        _line(history.info["name"], style="bold"),
        _data(history),
        _bar(history, now, width),
        _states(history),
        Text(),
        _table(columns, last, gap, header=True),
        Text(),
        _line(_front_title(history, len(front)), style="bold"),
        _table(columns, front, gap, header=False),
    )


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
        case "finish" if trial is not None:
            return f"{_ended(history, trial)} [{short_settings(trial.config, history.parameters())}]"
        case "end":
            states = ", ".join(f"{total} {state}" for state, total in history.counts().items() if total)
            return f"ended: {event['reason']}; {states or 'no trial'}; {_front_title(history, None)}"
        case _:
            return None


def _ended(history: History, trial: Trial) -> str:
    after = "" if trial.kind == "probe" else f" after {count(trial.epochs, 'epoch')}"
    done = f"{trial.trial_id} {trial.state}{after}, {duration(trial.seconds)}"
    told = [f"{metric_label(m, history.info['data'])} {number(v)}" for m, v in _objectives(history, trial).items()]
    reason = [trial.reason] if trial.reason else []
    return ": ".join([done, "; ".join([*reason, ", ".join(told)] if told else reason)]).removesuffix(": ")


def _objectives(history: History, trial: Trial) -> dict[str, float]:
    metrics = trial.metrics
    return {o.metric: metrics[o.metric] for o in history.objectives if o.metric in metrics}


def _data(history: History) -> Text:
    data = history.info["data"]
    if data["name"] != "generated":
        return _line(data["description"])
    return _line("generated pictures: their accuracy says nothing of real ones", style="yellow")


def _bar(history: History, now: float, width: int) -> RenderableType:
    """The budget as a bar with its words beside it; the words alone where there is no room."""
    now_spent = spent(history, now)
    if history.end is not None:
        text, fraction = f"ended after {duration(history.active_seconds())}: {history.end}", None
    elif now_spent is None:
        text, fraction = f"starting · {duration(history.active_seconds(now))}", 0.0
    else:
        left = f"{about(now_spent.seconds_left)} left" if now_spent.seconds_left else "finishing"
        text, fraction = f"{now_spent.text} · {left}", now_spent.fraction
    room = width - len(text) - 2
    if fraction is None or room < 8:
        return _line(text)
    line = Table.grid(padding=(0, 2, 0, 0))
    line.add_row(ProgressBar(total=1.0, completed=fraction, width=min(room, 40)), text)
    return line


def _states(history: History) -> Text:
    counts = {state: total for state, total in history.counts().items() if total}
    parts = [Text(f"{total} {state}", style=COLORS[state]) for state, total in counts.items()]
    if preparing := len(history.preparing()):
        parts.append(Text(count(preparing, "probe"), style="dim"))
    line = Text(" · ").join(parts or [Text("no trial yet")])
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


def _last(history: History, most: int) -> list[Trial]:
    """The trials started last; those still running always among them."""
    trials = list(history.trials.values())
    running = [t for t in trials if t.state == "running"][-most:]
    ended = [t for t in trials if t.state != "running"]
    chosen = running + (ended[-(most - len(running)) :] if len(running) < most else [])
    return sorted(chosen, key=trials.index)


@dataclass(frozen=True)
class _Column:
    title: str
    width: int
    cell: Callable[[Trial], str | Text]
    right: bool = False


def _columns(history: History, width: int) -> list[_Column]:
    """The columns of both tables, so that they stand below each other."""
    epochs, wide = history.budget["epochs"], width >= NARROW
    columns = [
        _Column("trial", 5, lambda trial: trial.trial_id),
        _Column("state", 10, lambda trial: Text(trial.state, style=COLORS[trial.state])),
    ]
    if wide and not history.probes:
        columns.append(
            _Column(
                "epoch",
                2 * len(str(epochs)) + 3,
                lambda t: f"{t.epochs}/{epochs}" if t.kind == "train" else "probe",
                right=True,
            )
        )
    for o in history.objectives:
        title = _two_lines(f"{o.metric} {ARROWS[o.goal]}")
        columns.append(
            _Column(title, max(9, *map(len, title.split("\n"))), partial(_figure, o.metric, wide), right=True)
        )
    room = width - sum(column.width + 2 for column in columns)
    if wide and room > 12:
        names = history.varying(history.trials.values())
        columns.append(_Column("settings", room, lambda trial: short_settings(trial.config, names)))
    return columns


def _figure(metric: str, with_spread: bool, trial: Trial) -> str:
    metrics = trial.metrics
    return spread(metrics[metric], half_width(metrics, metric) if with_spread else None) if metric in metrics else ""


def _two_lines(name: str) -> str:
    """A metric's name over two lines of about the same length, broken where it has a joint."""
    joints = [i + 1 for i, letter in enumerate(name) if letter == "_"]
    at = min(joints, key=lambda i: abs(2 * i - len(name)), default=0)
    return f"{name[:at]}\n{name[at:]}".lstrip("\n")


def _table(columns: list[_Column], trials: list[Trial], gap: int, header: bool) -> Table:
    table = Table(box=None, show_header=header, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")
    for column in columns:
        table.add_column(
            column.title,
            width=column.width,
            justify="right" if column.right else "left",
            vertical="bottom",
            no_wrap=True,
            overflow="ellipsis",
        )
    for trial in trials:
        table.add_row(*(column.cell(trial) for column in columns))
    return table


def _front_title(history: History, shown: int | None) -> str:
    size, complete = len(history.front()), history.counts()["complete"]
    if not size:
        return "no front yet"
    rest = f", {shown} shown" if shown is not None and shown < size else ""
    return f"front of {count(size, 'point')} from {count(complete, 'complete trial')}{rest}"


def _line(text: str, style: str = "") -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


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
