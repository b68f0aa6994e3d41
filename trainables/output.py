"""Output of `trainables.train`: a line per epoch, a table of curves, and the results of a probe."""

from __future__ import annotations

import csv
import json
import sys
import textwrap
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TextIO

from trainables.contract import Measurement, Metric, Verdict

WIDTH = 80
FLAGS, HARDWARE_RATES = ("contended",), ("teraflops_per_second", "memory_gib_per_second")


def report(text: str, as_json: bool, **values: Any) -> None:
    """Print `text` for people, or `values` as one JSON object on a line for programs."""
    _write(json.dumps(values) if as_json else text, sys.stdout)


def report_error(reason: str, as_json: bool, **more: int) -> None:
    """Print why a training ended: on stderr for people, as one JSON object on stdout for programs."""
    text, file = (json.dumps({"error": reason, **more}), sys.stdout) if as_json else (f"train: {reason}", sys.stderr)
    _write(text, file)


def _write(line: str, file: TextIO) -> None:
    """Write in one go: several ranks may write at once. Characters that the encoding lacks are escaped."""
    encoding = file.encoding or "utf-8"
    file.write(f"{line}\n".encode(encoding, "backslashreplace").decode(encoding))
    file.flush()


def _place(name: str, names: Collection[str]) -> int:
    """Return the place of a metric in a line: what was learned, then the rate, the training's loss, and the others."""
    is_rate = name.endswith("_per_second") and name not in HARDWARE_RATES
    is_learned = name.startswith("val_") and (name != "val_loss" or "val_accuracy" not in names)
    kinds = name == "val_accuracy", is_learned, is_rate, name == "train_loss"
    return kinds.index(True) if True in kinds else len(kinds)


def line(measurement: Measurement, epochs: int) -> str:
    """Format an epoch with as many metrics as fit, the most important ones first.

    The last epoch is followed by a line on its rates where these stand for less than half of the windows.
    """
    text = f"epoch {measurement.epoch:>{len(str(epochs))}}/{epochs}"
    metrics = measurement.metrics
    shown = [name for name in metrics if not name.endswith(("_low", "_high")) and name not in FLAGS]
    for name in sorted(shown, key=lambda name: _place(name, shown)):
        value = metrics[name]
        more = f"  {name} {value:,.0f}" if abs(value) >= 10_000 else f"  {name} {value:.4g}"
        if len(text) + len(more) <= WIDTH:
            text += more
    counted, left_out = (measurement.metrics.get(f"{name}_windows", 0.0) for name in ("throughput", "contended"))
    if measurement.epoch == epochs and left_out > counted:
        text += f"\nOther work slowed {left_out:,.0f} of {left_out + counted:,.0f} windows, which the rates leave out."
    return text


def tested(metrics: Mapping[str, float]) -> str:
    """Format what was measured on the test samples, with the ends of each interval, in lines of at most 80 columns."""
    ends = {f"{name}_{end}" for name in metrics for end in ("low", "high")}
    lines = []
    for name in (name for name in metrics if name not in ends):
        low, high = metrics.get(f"{name}_low"), metrics.get(f"{name}_high")
        interval = "" if low is None or high is None else f", 95% interval {low:.4f} to {high:.4f}"
        lines.append(f"{name} {metrics[name]:.4f}{interval}")
    return "\n".join(lines)


def record(path: Path, config: Mapping[str, Any], measurement: Measurement) -> None:
    """Append an epoch to a table of curves; an epoch that is reported again replaces its row and the later ones."""
    row = {"epoch": measurement.epoch, **{f"config.{k}": v for k, v in config.items()}, **measurement.metrics}
    rows: list[dict[str, Any]] = []
    if path.exists():
        with path.open(newline="") as file:
            rows = [old for old in csv.DictReader(file) if int(old["epoch"]) < measurement.epoch]
    rows.append(row)
    unfinished = path.with_suffix(".part")
    with unfinished.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(name for each in rows for name in each)))
        writer.writeheader()
        writer.writerows(rows)
    unfinished.replace(path)


def findings(metrics: Mapping[str, float], known: Mapping[str, Metric], verdict: Verdict | None) -> str:
    """Format a probe's metrics, one per line, then the bottleneck."""
    lines = [f"{name:<24}{metrics[name]:>10,.4g} {metric.unit}" for name, metric in known.items() if name in metrics]
    if verdict is None:
        return "\n".join(lines)
    text = f"bound by {verdict.bound_by} ({verdict.share:.0%} of each step): {verdict.why}"
    return "\n".join([*lines, "", textwrap.fill(text, WIDTH, subsequent_indent="  ")])
