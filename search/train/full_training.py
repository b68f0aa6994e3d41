"""A training as a process of its own: followed epoch by epoch, ended in order, and never left behind."""

from __future__ import annotations

import csv
import ctypes
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

CURVES, TESTED = "curves.csv", "test.json"  # what `trainables.train` writes into its folder
PATIENCE_SECONDS = 30.0  # for it to end by itself when it is asked to
PR_SET_PDEATHSIG = 1

_EPOCH = re.compile(r"epoch +(\d+)/\d+ ")
_EXPECTED = ("train: interrupted", "test_")  # lines that are told in another way


@dataclass(frozen=True)
class Epoch:
    """What an epoch gave."""

    number: int
    metrics: dict[str, float]


@dataclass
class Heard:
    """What a training says, by what it is: `epoch` and `other` are called as it comes, reasons are kept."""

    epoch: Callable[[Epoch], None]
    other: Callable[[str], None]
    reasons: list[str] = field(default_factory=list)


def train(words: Sequence[str], folder: Path, heard: Heard) -> int:
    """Run `python -m trainables.train` with these words; its exit code.

    It is a process group of its own, so that Ctrl-C reaches this process alone, which then ends it in order.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "trainables.train", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        preexec_fn=_end_with_parent,
    )
    try:
        for line in process.stdout or ():
            hear(line.rstrip("\n"), folder, heard)
        return process.wait()
    finally:
        _end(process)


def read_curves(folder: Path) -> list[Epoch]:
    """The epochs of a training so far, in order; empty cells are left out."""
    try:
        with (folder / CURVES).open(newline="") as file:
            return [Epoch(int(row["epoch"]), dict(_metrics(row))) for row in csv.DictReader(file)]
    except FileNotFoundError:
        return []


def _metrics(row: dict[str, str]) -> Iterator[tuple[str, float]]:
    for name, cell in row.items():
        if name != "epoch" and not name.startswith("config.") and cell:
            yield name, float(cell)


def hear(line: str, folder: Path, heard: Heard) -> None:
    """Take in a line that a training in that folder printed."""
    if told := _EPOCH.match(f"{line} "):
        number = int(told[1])  # the table may already have later ones
        heard.epoch(next((epoch for epoch in read_curves(folder) if epoch.number == number), Epoch(number, {})))
    elif line.startswith("train: ") and not line.startswith(_EXPECTED):
        heard.reasons.append(line.removeprefix("train: "))
    elif line and not line.startswith(_EXPECTED):
        heard.other(line)


def _end_with_parent() -> None:
    """In the new process, before it begins: it can be interrupted, and on Linux is so when its parent is killed."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell ignores it for what runs in the background
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGINT)


def _end(process: subprocess.Popen[str]) -> None:
    """Nothing of it runs on."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.stdout:
        process.stdout.close()
