"""`python -m trainables.train` as a child process: its reports, its orderly end, and no process left behind."""

from __future__ import annotations

import contextlib
import csv
import ctypes
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainables.contract import RENAMED_METRICS

CURVES = "curves.csv"  # written by `trainables.train` into its folder
TIMES = ("epoch_seconds", "evaluation_seconds", "checkpoint_seconds")
TIMEOUT_SECONDS = 30.0  # between the request to end and the kill
PR_SET_PDEATHSIG = 1  # option of prctl: the signal that a process gets when its parent dies


@dataclass(frozen=True)
class Epoch:
    """Metrics of one epoch."""

    number: int
    metrics: dict[str, float]

    @property
    def seconds(self) -> float:
        """Duration of training, evaluation and checkpoint together; NaN if one was not timed."""
        return math.fsum(self.metrics.get(name, math.nan) for name in TIMES)


def message_of(line: str) -> Any:
    """Return what a line of output says in JSON; None: it is another line."""
    try:
        return json.loads(line)
    except ValueError:
        return None


@dataclass
class Reports:
    """Everything that a training reported; `on_...` are called as soon as the line is there."""

    on_epoch: Callable[[Epoch], None]
    on_data: Callable[[str], None]
    on_other: Callable[[str], None]  # any line that is no report, such as a warning
    on_step: Callable[[int, int, int], None] = lambda epoch, step, steps: None  # within an epoch that takes long
    data: str = ""
    test_metrics: dict[str, float] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def receive(self, line: str) -> None:
        """Take one line of the training's output."""
        match message_of(line):
            case {"epoch": int(number), "metrics": dict(metrics)}:
                self.on_epoch(Epoch(number, metrics))
            case {"in_epoch": int(number), "step": int(step), "steps": int(steps)}:
                self.on_step(number, step, steps)
            case {"data": str(description)}:
                self.data = description
                self.on_data(description)
            case {"test": dict(metrics)}:
                self.test_metrics = metrics
            case {"error": str(reason)}:
                self.errors.append(reason)
            case _ if line:
                self.on_other(line)


def train(arguments: Sequence[str], reports: Reports) -> int:
    """Run `python -m trainables.train` and return its exit code."""
    process = start(arguments)
    try:
        for line in process.stdout or ():
            reports.receive(line.rstrip("\n"))
        return process.wait()
    finally:
        end(process)


class TrainingError(Exception):
    """Raised where a training ends without a result; the message is its own."""


def last_metrics(arguments: Sequence[str]) -> Mapping[str, float]:
    """Train in a folder that is deleted afterwards; return the metrics of the last epoch, or of a probe.

    Raises:
        TrainingError: it failed, or cannot run here.
    """
    epochs, others = list[Epoch](), list[str]()
    reports = Reports(on_epoch=epochs.append, on_data=lambda text: None, on_other=others.append)
    with tempfile.TemporaryDirectory() as folder:
        code = train([*arguments, "--folder", folder], reports)
    if code or not epochs:
        raise TrainingError((reports.errors or others[-1:] or [f"ended with exit code {code}"])[0])
    return epochs[-1].metrics


def interrupt_with_parent() -> None:
    """Have this child process, before its program starts, interrupted when its parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell lets its background processes ignore SIGINT
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGINT)


def start(arguments: Sequence[str]) -> subprocess.Popen[str]:
    """Start `python -m trainables.train`, whose output is a pipe.

    The child is a process group of its own: Ctrl-C reaches this process only, which then ends the child in order.
    """
    return subprocess.Popen(
        [sys.executable, "-m", "trainables.train", "--json", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        preexec_fn=interrupt_with_parent,
    )


def end(process: subprocess.Popen[str]) -> None:
    """Interrupt the process if it still runs, wait `TIMEOUT_SECONDS`, and kill what is left of its group."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=TIMEOUT_SECONDS)
    with contextlib.suppress(ProcessLookupError):  # such as loader processes that were stopped when it was killed
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout:
        process.stdout.close()


def read_curves(folder: Path) -> list[Epoch]:
    """Return the epochs in `curves.csv` in order, without empty cells."""
    try:
        with (folder / CURVES).open(newline="") as file:
            rows = list(csv.DictReader(file))
    except FileNotFoundError:
        return []
    return [
        Epoch(
            int(row.pop("epoch")),
            {RENAMED_METRICS.get(k, k): float(cell) for k, cell in row.items() if cell and not k.startswith("config.")},
        )
        for row in rows
    ]
