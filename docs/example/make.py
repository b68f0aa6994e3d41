"""Writes docs/example/journal.jsonl: the run that docs/decide.ipynb reads, of real measurements.

    python docs/example/make.py

No search was run for it. Each of its trials is a curve that was trained and a rate that was probed, as the tables of
`benchmarks/tables` have them (there is said how, when and on what), for a configuration drawn at random.
"""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TABLES = HERE.parents[1] / "benchmarks" / "tables"
TRIALS = 40
BEGAN_AT = 1795305600.0  # 2026-11-22, the day of the tables; the times of trials are those that they took

CURVE_SETTINGS, RATE_SETTINGS = ("batch_size", "precision"), ("loader", "num_workers", "strategy", "threads")
METRICS = {
    "val_accuracy": "fraction",
    "val_loss": "nats",
    "images_per_second": "images/s",
    "images_per_second_low": "images/s",
    "images_per_second_high": "images/s",
    "contended": "0 or 1",
}


def main() -> None:
    """Draw the trials and write the journal."""
    about = json.loads((TABLES / "vgg19.json").read_text())
    curves, rates = _rows("vgg19-curves.csv"), _rows("vgg19-rates.csv")
    learned = sorted({(row["batch_size"], row["precision"], row["learning_rate"]) for row in curves})
    rng = random.Random(0)
    events, now = [_run(about)], BEGAN_AT
    for number, (batch_size, precision, learning_rate) in enumerate(rng.sample(learned, TRIALS), start=1):
        rate = rng.choice([row for row in rates if (row["batch_size"], row["precision"]) == (batch_size, precision)])
        curve = [
            r
            for r in curves
            if (r["batch_size"], r["precision"], r["learning_rate"]) == (batch_size, precision, learning_rate)
        ]
        config = {name: _value(rate[name]) for name in (*CURVE_SETTINGS, *RATE_SETTINGS) if rate[name]}
        config["learning_rate"] = _value(learning_rate)
        trial = {"trial_id": f"t{number:04d}"}
        events.append({"event": "start", "time": now, **trial, "config": {**config, **about["fixed"]}, "kind": "train"})
        spent = 0.0
        for row in sorted(curve, key=lambda row: int(row["epoch"])):
            spent += float(row["epoch_seconds"]) + float(row["evaluation_seconds"])
            metrics = {name: _value(row[name]) for name in ("val_accuracy", "val_loss")}
            metrics |= {name: _value(rate[name]) for name in METRICS if rate.get(name)}
            told = {"epoch": int(row["epoch"]), "metrics": metrics, "decision": "continue", "seconds": spent}
            events.append({"event": "measurement", "time": now + spent, **trial, **told})
        now += spent
        ended = {"state": "complete", "reason": None, "seconds": spent, "setup_seconds": 0.0, "verdict": None}
        events.append({"event": "finish", "time": now, **trial, **ended})
    events.append({"event": "end", "time": now, "reason": f"{TRIALS} configurations were drawn"})
    (HERE / "journal.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))


def _run(about: dict[str, Any]) -> dict[str, Any]:
    objectives = [{"metric": name, "goal": "maximize"} for name in ("val_accuracy", "images_per_second")]
    parameters = {
        "batch_size": {"values": [32, 64, 128, 256, 512]},
        "learning_rate": {"min": 0.003, "max": 0.3, "log": True},
        "precision": {"values": ["fp32", "bf16"]},
        "loader": {"values": ["memory", "workers"]},
        "num_workers": {"values": [0, 1, 2], "when": {"loader": "workers"}},
        "strategy": {"values": ["single", "ddp"]},
        "threads": {"values": [1, 2], "when": {"strategy": "single"}},
    }
    budget = {"trials": TRIALS, "epochs": about["epochs"], "hours": None, "total_epochs": None}
    data = {"name": "folder", "train_images": about["train_images"], "val_images": 1000}
    return {
        "event": "run",
        "time": BEGAN_AT,
        "name": "example",
        "trainable": "vgg19_cifar10",
        "objectives": objectives,
        "constraints": [],
        "space": {"objectives": objectives, "parameters": parameters, "fixed": about["fixed"], "data": data},
        "budget": budget,
        "metrics": METRICS,
        "data": {"name": "folder", "description": about["data"]},
        "machine": {"cpu_name": about["processor"], "cores": about["cores"], "memory_gib": 24, "gpus": []},
        "versions": about["versions"],
        "commit": about["commit"],
        "command": ["python", "docs/example/make.py"],
        "seed": 0,
        "left_out": ["a search: configurations were drawn at random, and their recorded measurements taken"],
        "space_file": "none",
    }


def _rows(name: str) -> list[dict[str, str]]:
    with (TABLES / name).open(newline="") as file:
        return list(csv.DictReader(file))


def _value(cell: str) -> Any:
    """A number where it is one."""
    try:
        number = float(cell)
    except ValueError:
        return cell
    return int(number) if number.is_integer() and "." not in cell else number


if __name__ == "__main__":
    main()
