"""Lines about trials: the running ones, and a table of the front and of the trials that ended last."""

import bisect
import itertools
import textwrap
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from rich.text import Text

from search.record.activity import activity, phase
from search.record.run_state import RunState
from search.record.trial import Trial
from search.terminal.front_sketch import Symbols
from search.text.configurations import format_settings
from search.text.metrics import ARROWS
from search.text.numbers import plural
from search.text.shorten import shorten

COLORS = {"running": "cyan", "complete": "green", "stopped": "yellow", "infeasible": "magenta", "failed": "red"}
NARROW = 60  # columns; narrower tables omit symbols, intervals and settings
MIN_ROOM, INDENT = 12, 8  # columns: least width of the settings; indent of settings on their own lines
MIN_LINES = 6
MIN_LAST = 2  # least lines for the last trials while the run is active


def running_lines(run_state: RunState, width: int, height: int, mark: str) -> list[Text]:
    """Return at most `height` lines of at most `width` columns; a short form where several trials do not fit."""
    running = [trial for trial in run_state.trials.values() if trial.state == "running"]
    if not running or run_state.end is not None:
        return [Text(line, style="dim") for line in textwrap.wrap(phase(run_state), width)][:height]
    full = [line for trial in running for line in _full_lines(run_state, trial, width, mark)]
    if len(full) <= height or len(running) == 1:
        return full[:height]
    shown = running if len(running) <= height else running[len(running) - height + 1 :]
    lines = [_short_line(run_state, trial, width, mark) for trial in shown]
    return lines + [Text(f"and {len(running) - len(shown)} more", style="dim")] * (len(shown) < len(running))


def _full_lines(run_state: RunState, trial: Trial, width: int, mark: str) -> list[Text]:
    first = _line(f"{mark} {trial.trial_id}  {activity(run_state, trial)}", width, "bold cyan")
    names = [o.metric for o in run_state.objectives if o.metric in trial.metrics]
    texts = [f"{name} {run_state.format_metric(trial, name)}" for name in names]  # the head says what is generated
    texts = [trial.waits_for] if trial.waits_for else texts or ["nothing measured yet"]
    if trial.retries:
        texts.append(f"retried {plural(trial.retries, 'time')}")
    settings = textwrap.wrap(format_settings(trial.config, run_state.parameters()), width - 2, break_on_hyphens=False)
    return [first, *(_line(f"  {t}", width) for t in texts), *(_line(f"  {line}", width, "dim") for line in settings)]


def _short_line(run_state: RunState, trial: Trial, width: int, mark: str) -> Text:
    metrics = [o.metric for o in run_state.objectives if run_state.is_rate(o.metric) and o.metric in trial.metrics]
    rates = [f"{run_state.format_metric(trial, name)} {run_state.unit(name)}".rstrip() for name in metrics]
    return _line("  ".join([f"{mark} {trial.trial_id}", activity(run_state, trial), *rates[:1]]), width)


def trial_rows(run_state: RunState, width: int, height: int, symbols: Symbols, with_running: bool) -> list[Text]:
    """Return at most `height` lines of at most `width` columns. `with_running` adds running trials as the last rows.

    Settings that are too long for their column go on their own lines, unless points of the front would then be hidden:
    in that case they are shortened. A narrow terminal shows no settings.
    """
    columns = _columns(run_state, width, symbols)
    room = width - sum(column.width + 1 for column in columns) - 1
    names = run_state.varying_parameters(run_state.trials.values()) if width >= NARROW and room >= MIN_ROOM else None
    heading = _heading(columns, "settings" if names else "")

    def row(trial: Trial, one_line: bool = False) -> list[Text]:
        words, cells = format_settings(trial.config, names or ()), [column.cell(trial) for column in columns]
        if one_line or len(words) <= room:
            return [_row(columns, cells, textwrap.shorten(words, max(room, 1), placeholder=""))]
        below = textwrap.wrap(words, width - INDENT, break_on_hyphens=False)
        return [_row(columns, cells, ""), *(Text(" " * INDENT + line) for line in below)]

    places = max(height, MIN_LINES) - len(heading) - 2
    front = [row(trial) for trial in run_state.front()]
    on_front = {trial.trial_id for trial in run_state.front()}
    others = [trial for trial in run_state.trials.values() if trial.trial_id not in on_front]
    ended = sorted((t for t in others if t.state != "running"), key=lambda trial: trial.finished_at)
    running = [trial for trial in others if trial.state == "running"] if with_running else []
    last = [row(trial) for trial in [*ended, *running][-places:]]
    room_above = places - min(MIN_LAST if run_state.end is None else 0, sum(map(len, last)))
    if sum(map(len, front)) > room_above:
        front = [row(trial, one_line=True) for trial in run_state.front()]
    upper = _spread(front, room_above)
    shown, upper_lines = len(upper), list(itertools.chain(*upper))
    lower = list(itertools.chain(*_fitting(last[::-1], places - len(upper_lines))[::-1]))
    lines = [*heading, Text(front_title(run_state, shown), style="bold"), *upper_lines]
    lines += [Text("last trials", style="bold"), *lower] if lower else []
    for line in lines:
        line.truncate(width, overflow="ellipsis")
        line.no_wrap = True
    return lines


def _spread(rows: Sequence[list[Text]], height: int) -> list[list[Text]]:
    """Select as many rows as fit, evenly spaced, both ends of the front included."""
    for shown in range(min(len(rows), height), 1, -1):
        chosen = [rows[round(i * (len(rows) - 1) / (shown - 1))] for i in range(shown)]
        if sum(map(len, chosen)) <= height:
            return chosen
    return _fitting(rows, height)


def _fitting(rows: Sequence[list[Text]], height: int) -> list[list[Text]]:
    """Select the first rows that fit; if not even the first one fits, cut it."""
    if height < 1:
        return []
    lines = list(itertools.accumulate(map(len, rows)))
    fitting = list(rows[: bisect.bisect_right(lines, height)])
    return fitting or [[*row[: height - 1], row[height - 1].copy().append("…")] for row in rows[:1]]


def front_title(run_state: RunState, shown: int | None) -> str:
    """Title with the size of the front; `shown`: how many of its points have a row, None without rows."""
    size, complete = len(run_state.front()), run_state.counts()["complete"]
    if not size:
        return "no front yet"
    rest = f", {shown} shown" if shown is not None and shown < size else ""
    return f"front of {plural(size, 'point')} from {plural(complete, 'complete trial')}{rest}"


class _Column(NamedTuple):
    title: str  # one line or two
    width: int
    cell: Callable[[Trial], Text]
    right: bool = False


def _columns(run_state: RunState, width: int, symbols: Symbols) -> list[_Column]:
    wide, front = width >= NARROW, {trial.trial_id for trial in run_state.front()}

    def name(trial: Trial) -> Text:
        if not wide:
            return Text(trial.trial_id)
        mark = symbols.front if trial.trial_id in front else symbols.now if trial.state == "running" else " "
        return Text(f"{mark} {trial.trial_id}", style="bold" if mark == symbols.front else "")

    def state(trial: Trial) -> Text:
        return Text(activity(run_state, trial), style=COLORS[trial.state])

    def figure(metric: str, trial: Trial) -> Text:
        text = run_state.format_metric(trial, metric)
        return Text(text if wide else text.partition(" ±")[0])

    longest = max(10, len(f"stopped {run_state.budget.epochs}/{run_state.budget.epochs}"))
    columns = [_Column("  trial", 7, name) if wide else _Column("trial", 5, name), _Column("state", longest, state)]
    for objective in run_state.objectives:
        heading = f"{objective.metric} {ARROWS[objective.goal]}"
        # split at an underscore into two lines of about the same length
        joints = [i + 1 for i, letter in enumerate(heading) if letter == "_"]
        at = min(joints, key=lambda i: abs(2 * i - len(heading)), default=0)
        title = f"{heading[:at]}\n{heading[at:]}".lstrip("\n")
        cell = partial(figure, objective.metric)
        widest = max(9, *map(len, title.split("\n")), *(len(cell(trial)) for trial in run_state.trials.values()))
        columns.append(_Column(title, widest, cell, right=True))
    return columns


def _heading(columns: Sequence[_Column], settings: str) -> list[Text]:
    """One heading line or two; short titles stand on the lower one."""
    upward = itertools.zip_longest(*(column.title.split("\n")[::-1] for column in columns), fillvalue="")
    rows = [_row(columns, [Text(t) for t in titles], "" if i else settings) for i, titles in enumerate(upward)]
    for row in rows:
        row.stylize("dim")
    return rows[::-1]


def _row(columns: Sequence[_Column], cells: Sequence[Text], settings: str) -> Text:
    row = Text()
    for cell, column in zip(cells, columns, strict=True):
        cell.truncate(column.width, overflow="ellipsis")
        cell.align("right" if column.right else "left", column.width)
        row.append_text(cell).append(" ")
    row.append(f" {settings}")
    row.rstrip()
    return row


def _line(text: str, width: int, style: str = "") -> Text:
    return Text(shorten(text, width), style=style)
