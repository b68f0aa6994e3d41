"""What a configuration run by hand prints and writes: a line an epoch, a table of curves, the findings of a probe."""

from __future__ import annotations

import csv
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainables.contract import Measurement, Metric, Verdict

WIDTH = 80


def line(measurement: Measurement, epochs: int, width: int = WIDTH) -> str:
    """As many metrics as fit, in the trainable's order of reporting them."""
    text = f"epoch {measurement.epoch:>{len(str(epochs))}}/{epochs}"
    for name, value in sorted(measurement.metrics.items(), key=lambda item: ORDER.get(item[0], len(ORDER))):
        more = f"  {name} {value:.4g}"
        if len(text) + len(more) <= width:
            text += more
    return text


ORDER = {name: i for i, name in enumerate(("val_accuracy", "images_per_second", "train_loss", "test_accuracy"))}


def record(path: Path, config: Mapping[str, Any], measurement: Measurement) -> None:
    """Add an epoch to a table of curves; an epoch that is reported again takes the place of what it gave before."""
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
    """What a probe measured, one metric a line, then what bounds the configuration and what would help."""
    lines = [f"{name:<24}{metrics[name]:>10,.4g} {metric.unit}" for name, metric in known.items() if name in metrics]
    if verdict is None:
        return "\n".join(lines)
    said = [f"bound by {verdict.bound_by} ({verdict.share:.0%} of each step): {verdict.why}"]
    said += [f"{a.parameter}: {a.old} -> {a.new} should give {a.gain:.2f} x: {a.why}" for a in verdict.advice]
    return "\n".join([*lines, "", *(textwrap.fill(each, WIDTH, subsequent_indent="  ") for each in said)])
