"""Trials as rows of a terminal's table: the front, then those that ended last, under one heading."""

from __future__ import annotations

import bisect
import itertools
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from rich.text import Text

from search.record.history import History, Trial
from search.terminal.front_sketch import Marks
from search.terminal.now import doing
from search.text.wording import ARROWS, count, half_width, short_settings, spread

COLORS = {"running": "cyan", "complete": "green", "stopped": "yellow", "infeasible": "magenta", "failed": "red"}
NARROW = 60  # columns below which there is no room for marks, spreads and settings
LEAST_ROOM, INDENT = 12, 8  # columns: for settings; before those that have lines of their own
LEAST_LINES = 6
LEAST_LAST = 2  # lines of the last trials while a run goes on, however long the front


def trial_rows(history: History, width: int, height: int, marks: Marks, with_running: bool) -> list[Text]:
    """At most `height` lines of at most `width` columns. `with_running`: what runs has a row too, below all others.

    Settings that are too long for their column have lines of their own; where these would push points of the front out
    of sight, their column has what fits. On a narrow terminal there are none.
    """
    columns = _columns(history, width, marks)
    room = width - sum(column.width + 1 for column in columns) - 1
    names = history.varying(history.trials.values()) if width >= NARROW and room >= LEAST_ROOM else None
    heading = _heading(columns, "settings" if names else "")

    def row(trial: Trial, one_line: bool = False) -> list[Text]:
        words, cells = short_settings(trial.config, names or ()), [column.cell(trial) for column in columns]
        if one_line or len(words) <= room:
            return [_row(columns, cells, textwrap.shorten(words, max(room, 1), placeholder=""))]
        below = textwrap.wrap(words, width - INDENT, break_on_hyphens=False)
        return [_row(columns, cells, ""), *(Text(" " * INDENT + line) for line in below)]

    places = max(height, LEAST_LINES) - len(heading) - 2
    front = [row(trial) for trial in history.front()]
    last = [row(trial) for trial in _last(history, with_running)[-places:]]
    room_above = places - min(LEAST_LAST if history.end is None else 0, sum(map(len, last)))
    if sum(map(len, front)) > room_above:
        front = [row(trial, one_line=True) for trial in history.front()]
    upper = _spread(front, room_above)
    shown, upper_lines = len(upper), list(itertools.chain(*upper))
    lower = list(itertools.chain(*_fitting(last[::-1], places - len(upper_lines))[::-1]))
    lines = [*heading, Text(front_title(history, shown), style="bold"), *upper_lines]
    lines += [Text("last trials", style="bold"), *lower] if lower else []
    for line in lines:
        line.truncate(width, overflow="ellipsis")
        line.no_wrap = True
    return lines


def _spread(rows: Sequence[list[Text]], height: int) -> list[list[Text]]:
    """As many as have room, evenly over all of them: of a front both ends are shown, and something between."""
    for shown in range(min(len(rows), height), 1, -1):
        chosen = [rows[round(i * (len(rows) - 1) / (shown - 1))] for i in range(shown)]
        if sum(map(len, chosen)) <= height:
            return chosen
    return _fitting(rows, height)


def _fitting(rows: Sequence[list[Text]], height: int) -> list[list[Text]]:
    """The first of them, as many as have room; of the first one, what has."""
    if height < 1:
        return []
    lines = list(itertools.accumulate(map(len, rows)))
    fitting = list(rows[: bisect.bisect_right(lines, height)])
    return fitting or [[*row[: height - 1], row[height - 1].copy().append("…")] for row in rows[:1]]


def front_title(history: History, shown: int | None) -> str:
    """How many points the front has, and of how many of them there is a row; None: there are no rows."""
    size, complete = len(history.front()), history.counts()["complete"]
    if not size:
        return "no front yet"
    rest = f", {shown} shown" if shown is not None and shown < size else ""
    return f"front of {count(size, 'point')} from {count(complete, 'complete trial')}{rest}"


def _last(history: History, with_running: bool) -> list[Trial]:
    """What is not on the front, in the order of its end; what still runs comes last, however long ago it began."""
    front = {trial.trial_id for trial in history.front()}
    trials = [trial for trial in history.trials.values() if trial.trial_id not in front]
    ended = sorted((trial for trial in trials if trial.state != "running"), key=lambda trial: trial.finished_at)
    return ended + [trial for trial in trials if trial.state == "running"] * with_running


@dataclass(frozen=True)
class _Column:
    title: str  # over one line or two
    width: int
    cell: Callable[[Trial], Text]
    right: bool = False


def _columns(history: History, width: int, marks: Marks) -> list[_Column]:
    """All but the settings."""
    wide, front = width >= NARROW, {trial.trial_id for trial in history.front()}

    def name(trial: Trial) -> Text:
        if not wide:
            return Text(trial.trial_id)
        mark = marks.front if trial.trial_id in front else marks.now if trial.state == "running" else " "
        return Text(f"{mark} {trial.trial_id}", style="bold" if mark == marks.front else "")

    def state(trial: Trial) -> Text:
        return Text(doing(history, trial), style=COLORS[trial.state])

    longest = max(10, len(f"stopped {history.budget['epochs']}/{history.budget['epochs']}"))
    columns = [_Column("  trial", 7, name) if wide else _Column("trial", 5, name), _Column("state", longest, state)]
    for objective in history.objectives:
        title = _two_lines(f"{objective.metric} {ARROWS[objective.goal]}")
        figure = partial(_figure, objective.metric, wide)
        widest = max(9, *map(len, title.split("\n")), *(len(figure(trial)) for trial in history.trials.values()))
        columns.append(_Column(title, widest, figure, right=True))
    return columns


def _figure(metric: str, with_spread: bool, trial: Trial) -> Text:
    metrics = trial.metrics
    if metric not in metrics:
        return Text()
    return Text(spread(metrics[metric], half_width(metrics, metric) if with_spread else None))


def _two_lines(name: str) -> str:
    """A metric's name over two lines of about the same length, broken where it has a joint."""
    joints = [i + 1 for i, letter in enumerate(name) if letter == "_"]
    at = min(joints, key=lambda i: abs(2 * i - len(name)), default=0)
    return f"{name[:at]}\n{name[at:]}".lstrip("\n")


def _heading(columns: Sequence[_Column], settings: str) -> list[Text]:
    """One line or two; titles stand on the lower one."""
    depth = max(column.title.count("\n") + 1 for column in columns)
    titles = [([""] * depth + column.title.split("\n"))[-depth:] for column in columns]
    rows = [_row(columns, [Text(title[i]) for title in titles], settings * (i == depth - 1)) for i in range(depth)]
    for row in rows:
        row.stylize("dim")
    return rows


def _row(columns: Sequence[_Column], cells: Sequence[Text], settings: str) -> Text:
    """One space between the columns, two before the settings."""
    row = Text()
    for cell, column in zip(cells, columns, strict=True):
        cell.truncate(column.width, overflow="ellipsis")
        cell.align("right" if column.right else "left", column.width)
        row.append_text(cell).append(" ")
    row.append(f" {settings}")
    row.rstrip()
    return row
