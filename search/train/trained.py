"""What a full training came to, beside what the search had measured: result.csv and summary.md."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from search.record.history import Trial
from search.results import Run
from search.text.markdown import table, wrapped
from search.text.wording import count, duration, half_width, metric_label, spread
from search.train.full_training import TESTED, Epoch, read_curves

RESULT, SUMMARY = "result.csv", "summary.md"
TIMES = ("epoch_seconds", "evaluation_seconds", "checkpoint_seconds")  # of an epoch, which they make up


@dataclass(frozen=True)
class Trained:
    """A training that reached its last epoch."""

    run: Run
    trial: Trial
    folder: Path
    curve: Sequence[Epoch]
    tested: Mapping[str, float]

    @property
    def metrics(self) -> dict[str, float]:
        """Of the last epoch, and of the test set."""
        return {**self.curve[-1].metrics, **self.tested}

    @property
    def seconds(self) -> float:
        """Of all epochs together; NaN: they were not timed."""
        return math.fsum(epoch.metrics.get(name, math.nan) for epoch in self.curve for name in TIMES)


def read_trained(run: Run, trial: Trial, folder: Path) -> Trained:
    """What is in the folder of a training that has ended.

    Raises:
        OSError, ValueError: it has not, or is damaged.
    """
    tested = json.loads((folder / TESTED).read_text())
    curve = read_curves(folder)
    if not curve:
        raise ValueError(f"{folder}: no epoch in it")
    return Trained(run, trial, folder, curve, tested)


def finished(folder: Path) -> str | None:
    """What a finished training in that folder came to; None: there is none."""
    try:
        with (folder / RESULT).open(newline="") as file:
            row = next(csv.DictReader(file), {})
    except FileNotFoundError:
        return None
    accuracies = [f"{name} {float(row[name]):.4f}" for name in ("val_accuracy", "test_accuracy") if row.get(name)]
    return ", ".join([count(int(row.get("epochs") or 0), "epoch"), *accuracies])


def write_trained(trained: Trained, conditions: Mapping[str, Any]) -> None:
    """Write summary.md, then result.csv, whose presence says that the training is finished."""
    row = {
        "trial_id": trained.trial.trial_id,
        "epochs": trained.curve[-1].number,
        "seconds": trained.seconds if math.isfinite(trained.seconds) else "",
        **{f"config.{name}": value for name, value in trained.run.history.ordered(trained.trial).items()},
        **trained.metrics,
    }
    _write(trained.folder / SUMMARY, as_markdown(trained, conditions))
    _write(trained.folder / RESULT, "".join(f"{','.join(map(_cell, cells))}\n" for cells in (row, row.values())))


def headline(trained: Trained) -> str:
    """`t0020 trained for 200 epochs in 2 h 5 min`."""
    took = f" in {duration(trained.seconds)}" if math.isfinite(trained.seconds) else ""
    return f"{trained.trial.trial_id} trained for {count(trained.curve[-1].number, 'epoch')}{took}"


def beside_search(trained: Trained) -> str:
    """A table of the metrics that people look for: in full, and as the search had measured them."""
    metrics, before, data = trained.metrics, trained.trial.metrics, trained.run.info["data"]
    objectives = [o.metric for o in trained.run.history.objectives]
    names = [
        name
        for name in dict.fromkeys([*objectives, "val_accuracy", *trained.tested, "images_per_second"])
        if name in metrics and "loss" not in name
    ]
    in_search = count(trained.trial.epochs, "epoch") if trained.trial.epochs else "probe"
    return table(
        {
            "metric": [metric_label(name, data) for name in names],
            "in full": [_value(metrics, name) for name in names],
            f"in the search ({in_search})": [_value(before, name) for name in names],
        }
    )


def as_markdown(trained: Trained, conditions: Mapping[str, Any]) -> str:
    """The summary: the figures beside those of the search, and their conditions."""
    best = max(trained.curve, key=lambda epoch: epoch.metrics.get("val_accuracy", -1.0))
    top = best.metrics.get("val_accuracy", math.nan)
    said = f"Best val_accuracy: {top:.4f}, epoch {best.number}; the checkpoint is of the last one."
    peak = [wrapped(said)] if math.isfinite(top) else []
    lines = [wrapped(f"- {name}: {text}", "  ") for name, text in conditions.items() if text]
    blocks = [f"# {headline(trained)}", beside_search(trained), *peak, "## Conditions", "\n".join(lines)]
    return "\n\n".join(blocks) + "\n"


def _value(metrics: Mapping[str, float], name: str) -> str:
    return spread(metrics[name], half_width(metrics, name)) if name in metrics else "–"


def _cell(value: object) -> str:
    text = str(value)
    return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',"\n') else text


def _write(path: Path, text: str) -> None:
    unfinished = path.with_name(f".{path.name}.partial")
    unfinished.write_text(text, encoding="utf-8")
    os.replace(unfinished, path)
