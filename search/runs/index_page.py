"""Page of the list: a row for each run, with a link to its report. It loads nothing, and sorts and filters itself."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from search.page.document import FILE_NAME, document
from search.record.disk import write_text_atomically
from search.runs.listed_run import ListedRun
from search.text.durations import format_duration
from search.text.metrics import ARROWS
from search.text.numbers import format_number

STYLES = ("page.css",)
SCRIPTS = ("runs.js", "table.js")
MARKS = {"running": "running", "interrupted": "failed", "unreadable": "failed"}  # classes of the style


class Cell(NamedTuple):
    """Cell of the table: its text, and the value to sort by if it is a number."""

    text: str
    value: float | None = None


def write_index(runs: Sequence[ListedRun], path: Path, refresh_seconds: float | None = None) -> None:
    """Write the page; `refresh_seconds`: it reloads itself that often.

    Raises:
        OSError: the file cannot be written.
    """
    text = index_page(runs, path.parent, time.time(), refresh_seconds)
    write_text_atomically(path, text)


def index_page(runs: Sequence[ListedRun], folder: Path, now: float, refresh_seconds: float | None = None) -> str:
    """Return the whole file, whose links are relative to its `folder`; `now` in seconds since 1970."""
    columns = _columns(runs)
    states = [run.state for run in runs]
    return document(
        "runs.html",
        STYLES,
        SCRIPTS,
        title="Training searches",
        counts=", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states)) or "no run",
        written=f"{datetime.fromtimestamp(now, UTC):%Y-%m-%d %H:%M} UTC",
        settings={"refreshSeconds": refresh_seconds},
        numeric={name: any(cell.value is not None for cell in cells) for name, cells in columns.items()},
        rows=[
            {
                "name": run.name,
                "link": _link(run, folder),
                "state": run.state,
                "mark": MARKS.get(run.state, ""),
                "cells": {name: cells[number] for name, cells in columns.items()},
            }
            for number, run in enumerate(runs)
        ],
    )


def _columns(runs: Sequence[ListedRun]) -> dict[str, list[Cell]]:
    """Return the cells of all runs by heading, without columns that have no text."""
    metrics = dict.fromkeys((best.metric, best.goal) for run in runs for best in run.best)
    columns = {
        "began (UTC)": [Cell(run.began_at) for run in runs],
        "took": [Cell(format_duration(run.seconds), run.seconds) if run.began else Cell("") for run in runs],
        "GPU hours": [Cell(format_number(run.gpu_hours), run.gpu_hours) if run.num_gpus else Cell("") for run in runs],
        "complete": [_count(run, run.trials.get("complete", 0)) for run in runs],
        "front": [_count(run, len(run.front)) for run in runs],
        **{f"{metric} {ARROWS[goal]}": [_best(run, metric, goal) for run in runs] for metric, goal in metrics},
        "space": [Cell(run.space) for run in runs],
        "training": [Cell(Path(run.trainable).name) for run in runs],
        "owner": [Cell(run.owner) for run in runs],
        "machine": [Cell(run.machine) for run in runs],
        "why it ended": [Cell(run.reason) for run in runs],
    }
    return {name: cells for name, cells in columns.items() if any(cell.text for cell in cells)}


def _count(run: ListedRun, number: int) -> Cell:
    return Cell(str(number), number) if run.began else Cell("")


def _best(run: ListedRun, metric: str, goal: str) -> Cell:
    found = (Cell(best.text, best.value) for best in run.best if (best.metric, best.goal) == (metric, goal))
    return next(found, Cell(""))


def _link(run: ListedRun, folder: Path) -> str:
    """Return the address of the report, relative to the page; empty: there is none."""
    report = run.folder / FILE_NAME
    return quote(os.path.relpath(report, folder)) if report.is_file() else ""
