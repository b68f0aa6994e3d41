"""Journals of made-up runs, as a real one would write them, for the tests of what reads them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from search.record.events import Event, Measurement, parse

REPLAYED = """\
trainable: replay
objectives:
  - {metric: val_accuracy, goal: maximize}
  - {metric: images_per_second, goal: maximize}
parameters:
  learning_rate: {min: 0.001, max: 0.5, log: true}
"""  # the head of a space file whose trials are replayed
STARTED_AT = 1_795_200_000.0  # 2026-11-20 18:40 UTC

INFO: dict[str, Any] = {
    "name": "throughput-2026-11-20-1",
    "space": {
        "trainable": "vgg19_cifar10",
        "parameters": {
            "batch_size": {"values": [64, 128, 256, 512]},
            "learning_rate": {"min": 0.001, "max": 0.5, "log": True},
            "loader": {"values": ["workers", "memory"]},
            "num_workers": {"values": [0, 1, 2], "when": {"loader": "workers"}},
            "strategy": {"values": ["single", "ddp"]},
            "precision": {"values": ["fp32", "bf16"]},
        },
        "fixed": {"optimizer": "sgd", "momentum": 0.9, "pin_memory": False},
        "data": {"name": "auto", "root": None, "train_images": None, "val_images": 5000},
        "searcher": {"name": "tpe", "seed": 0},
    },
    "objectives": [
        {"metric": "val_accuracy", "goal": "maximize"},
        {"metric": "images_per_second", "goal": "maximize"},
    ],
    "constraints": ["peak_memory_fraction <= 0.9"],
    "budget": {"trials": 16, "epochs": 3, "hours": 1.0, "total_epochs": None},
    "trainable": "vgg19_cifar10",
    "metrics": {
        "val_accuracy": "fraction",
        "images_per_second": "images/s",
        "images_per_second_low": "images/s",
        "images_per_second_high": "images/s",
        "peak_memory_fraction": "fraction",
        "train_loss": "nats",
    },
    "data": {
        "name": "cifar10",
        "description": "cifar10: 45,000 pictures to train on, 5,000 to validate, 10,000 to test",
    },
    "machine": {"cpu_name": "Intel(R) Xeon(R) Processor", "cores": 2, "memory_gib": 23.5, "shm_gib": 11.7, "gpus": []},
    "versions": {"python": "3.11.2", "torch": "2.15.0", "ray": "2.60.0", "optuna": "5.0.0"},
    "commit": "abc1234",
    "command": ["python", "-m", "search.run", "spaces/throughput.yaml", "--set", "budget.hours=1.0"],
    "seed": 0,
    "left_out": ["precision fp16: needs a GPU"],
    "space_file": "spaces/throughput.yaml",
}

FIXED = {"optimizer": "sgd", "momentum": 0.9, "pin_memory": False}


class Recorder:
    """Collects events with a clock that the test moves. `run.start(...)`, `run.epochs(...)`, `run.finish(...)`."""

    def __init__(self, **changed: Any) -> None:
        self.now = STARTED_AT
        self.events: list[dict[str, Any]] = []
        self.add("run", **{**INFO, **changed})

    def add(self, event: str, after: float = 0.0, **fields: Any) -> None:
        self.now += after
        self.events.append({"event": event, "time": self.now, **fields})

    def start(self, trial_id: str, kind: str = "train", **config: Any) -> None:
        gpus = len(self.events[0]["machine"].get("gpus", ()))  # each trial holds all
        self.add("start", 1.0, trial_id=trial_id, config={**FIXED, **config}, kind=kind, gpus=gpus)

    def measure(self, trial_id: str, epoch: int, decision: Any = "continue", **metrics: Any) -> None:
        self.add(
            "measurement",
            20.0,
            trial_id=trial_id,
            epoch=epoch,
            metrics=metrics,
            decision=decision,
            seconds=20.0 * epoch,
        )

    def epochs(self, trial_id: str, accuracies: Iterable[float], rate: float, **metrics: Any) -> None:
        for epoch, accuracy in enumerate(accuracies, start=1):
            measured = {**interval(rate, rate / 100), "peak_memory_fraction": 0.4, **metrics}
            self.measure(trial_id, epoch, val_accuracy=accuracy, **measured)

    def finish(self, trial_id: str, state: str = "complete", reason: str | None = None, seconds: float = 60.0) -> None:
        self.add("finish", 1.0, trial_id=trial_id, state=state, reason=reason, seconds=seconds, setup_seconds=0.5)

    def complete(self, trial_id: str, accuracies: Iterable[float], rate: float, config: Mapping[str, Any]) -> None:
        self.start(trial_id, **config)
        self.epochs(trial_id, accuracies, rate)
        self.finish(trial_id)


def interval(rate: float, half_width: float) -> dict[str, Any]:
    ends = {"images_per_second_low": rate - half_width, "images_per_second_high": rate + half_width}
    return {"images_per_second": rate, **ends}


def config(batch_size: int = 128, learning_rate: float = 0.05, **others: Any) -> dict[str, Any]:
    chosen = {"batch_size": batch_size, "learning_rate": learning_rate, "loader": "memory", "strategy": "single"}
    return {**chosen, "precision": "bf16", **others}


def story(**changed: Any) -> list[dict[str, Any]]:
    """A killed and resumed run with trials in every state.

    Front: t0003 (0.71, 180), t0007 (0.70, 352), t0011 (0.58, 401), of which the test set was asked about two.
    """
    run = Recorder(**changed)
    run.complete("t0001", [0.31, 0.44, 0.52], 301.0, config(64, 0.0478623, loader="workers", num_workers=0))
    run.start("t0002", **config(512, 0.31, precision="fp32"))
    run.finish("t0002", "infeasible", "out of memory: 21.3 GiB asked for, 18.9 GiB free", seconds=0.7)
    run.complete("t0003", [0.41, 0.6, 0.71], 180.0, config(64, 0.02, precision="fp32"))
    run.start("t0004", **config(256, 0.0011, loader="workers", num_workers=2))
    run.measure("t0004", 1, "stop", val_accuracy=0.12, **interval(210.0, 3.0))
    run.finish("t0004", "stopped", seconds=20.0)
    run.start("t0005", **config(256, 0.47))
    run.measure("t0005", 1, val_accuracy=None, images_per_second=350.0, train_loss=None)
    run.finish("t0005", "failed", "the loss is not finite after 181 steps", seconds=21.0)
    run.complete("t0006", [0.3, 0.4, 0.5], 340.0, config(256, 0.004))
    run.start("t0007", **config(128, 0.06))
    run.measure("t0007", 1, val_accuracy=0.39, **interval(349.0, 4.0))
    run.add("retry", 2.0, trial_id="t0007", reason="the workers died (signal 9)")
    run.measure("t0007", 1, val_accuracy=0.4, **interval(351.0, 4.0))
    run.measure("t0007", 2, val_accuracy=0.59, **interval(352.0, 4.0))
    run.add("resume", 3600.0)  # killed; an hour later a person noticed
    run.measure("t0007", 2, val_accuracy=0.6, **interval(352.0, 4.0))
    run.measure("t0007", 3, val_accuracy=0.7, **interval(352.0, 4.0))
    run.finish("t0007")
    run.start("t0008", **config(512, 0.2, strategy="ddp"))
    run.add("retry", 2.0, trial_id="t0008", reason="the workers died (signal 9)")
    run.finish("t0008", "failed", "the workers died twice (signal 9)", seconds=11.0)
    run.start("t0009", **config(512, 0.21, precision="fp32"))
    run.finish("t0009", "infeasible", "out of memory: 22.0 GiB asked for, 18.9 GiB free", seconds=0.6)
    run.start("t0010", **config(512, 0.1, precision="fp32"))
    run.epochs("t0010", [0.5, 0.6, 0.72], 402.0, peak_memory_fraction=0.95)  # the best of all, beyond the constraint
    run.finish("t0010")
    run.complete("t0011", [0.2, 0.41, 0.58], 401.0, config(512, 0.11))
    run.start("t0012", **config(128, 0.03, precision="fp32"))
    run.measure("t0012", 1, val_accuracy=0.42, **interval(353.0, 4.0))
    run.add("test", 5.0, trial_id="t0003", metrics={"test_accuracy": 0.703, "test_loss": 0.91})
    run.add("test", 5.0, trial_id="t0007", metrics={"test_accuracy": 0.694, "test_loss": 0.94})
    run.add("end", reason="the budget of 1 hour is spent")
    return run.events


def measurement(metrics: dict[str, float], epoch: int) -> Measurement:
    return Measurement(event="measurement", time=STARTED_AT, trial_id="t0001", epoch=epoch, metrics=metrics)


def typed(events: Iterable[Mapping[str, Any]]) -> list[Event]:
    """The events as a journal gives them back; an event without a time has that of the start."""
    return [parse(json.dumps({"time": STARTED_AT, **event}).encode()) for event in events]


def write_run(folder: Path, events: Iterable[Mapping[str, Any]]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "journal.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return folder
