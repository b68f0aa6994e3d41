"""Gain of the first advice on a configuration: expected beside measured.

    python benchmarks/advice.py [--data folder --root pictures] [--repeats 3]

Each configuration is probed, its first advice is applied, and it is probed again, `--repeats` times in turn; the
measured gain is the median of the ratios. The advice holds if the measured gain is above 1 and within a quarter of the
expected one. The last line is one JSON object.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from command_line import conditions, parser_of

from trainables.contract import Advice, Data, InfeasibleError, Resources, Trainable, load_trainable
from trainables.local_worker import LocalWorker

NARROW = {"width": 0.03125, "batch_size": 256}
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "input-bound, loading in the trainer": {**NARROW, "loader": "workers", "num_workers": 0},
    "input-bound, one loader process": {**NARROW, "loader": "workers", "num_workers": 1},
    "compute-bound, fp32": {"precision": "fp32"},
    "compute-bound, fp32, library kernels": {"precision": "fp32", "conv_kernel": "library"},
    "compute-bound, half the width, fp32": {"precision": "fp32", "width": 0.5},
    "compute-bound, contiguous images": {"memory_format": "contiguous"},
    "compute-bound, library kernels": {"conv_kernel": "library"},
    "compute-bound, system allocator": {"allocator": "system"},
    "compute-bound, one thread": {"threads": 1},
    "small batches": {"batch_size": 8},
    "small batches, a quarter of the width": {"batch_size": 8, "width": 0.25},
}
TOLERANCE = 1.25  # largest ratio of expected and measured gain


@dataclass(frozen=True)
class Outcome:
    """Advice on one configuration, and the measured gains, one for each repeat."""

    name: str
    bound_by: str
    advice: Advice
    gains: list[float]

    @property
    def gain(self) -> float:
        """Median of the measured gains."""
        return statistics.median(self.gains)

    @property
    def holds(self) -> bool:
        """True if the advice helped by about the expected gain."""
        return self.gain > 1 and 1 / TOLERANCE <= self.gain / self.advice.gain <= TOLERANCE


def probe(trainable: Trainable, config: Mapping[str, Any], data: Data, resources: Resources) -> dict[str, float]:
    """Return the metrics of one probe, in this process."""
    with tempfile.TemporaryDirectory() as folder:
        worker = LocalWorker(Path(folder), data=data, resources=resources)
        trainable.probe(config, worker)
    return dict(worker.reported[-1].metrics)


def follow(
    name: str, config: dict[str, Any], trainable: Trainable, data: Data, resources: Resources, repeats: int
) -> Outcome | None:
    """Probe `config` with and without its first advice, in turn; return None if there is no advice."""
    metrics = probe(trainable, config, data, resources)
    verdict = trainable.explain(config, metrics, resources)
    if verdict is None or not verdict.advice:
        return None
    advice = verdict.advice[0]
    gains = []
    for _ in range(repeats):
        after = probe(trainable, {**config, advice.parameter: advice.new}, data, resources)["images_per_second"]
        gains.append(after / metrics["images_per_second"])
        metrics = probe(trainable, config, data, resources) if len(gains) < repeats else metrics
    return Outcome(name, verdict.bound_by, advice, gains)


def main() -> None:
    """Print a row for each configuration, and the figures as JSON."""
    parser = parser_of(__doc__)
    parser.add_argument("--trainable", default="vgg19_cifar10")
    parser.add_argument("--data", default="auto", choices=("auto", "cifar10", "folder", "generated"))
    parser.add_argument("--root", help="folder of the images")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", nargs="+", metavar="WORD", help="configurations with one of these words in the name")
    options = parser.parse_args()

    trainable = load_trainable(options.trainable)
    data = trainable.locate_data(Data(name=options.data, root=options.root))
    resources = Resources(cpus=os.cpu_count() or 1)
    print(f"{trainable.describe_data(data)}; {conditions()}")
    print("| configuration | bound by | advice | expected | measured (min to max) | holds |")
    print("| --- | --- | --- | ---: | ---: | --- |")
    outcomes = []
    for name, config in CONFIGURATIONS.items():
        if options.only and not any(word in name for word in options.only):
            continue
        try:
            outcome = follow(name, config, trainable, data, resources, options.repeats)
        except InfeasibleError as error:
            print(f"| {name} | - | cannot run here: {error} | | | |", flush=True)
            continue
        if outcome is None:
            print(f"| {name} | - | none | | | |", flush=True)
            continue
        outcomes.append(outcome)
        a, low, high = outcome.advice, min(outcome.gains), max(outcome.gains)
        print(
            f"| {name} | {outcome.bound_by} | `{a.parameter}` {a.old} → {a.new} | {a.gain:.2f} | "
            f"{outcome.gain:.2f} ({low:.2f} to {high:.2f}) | {'yes' if outcome.holds else 'no'} |",
            flush=True,
        )
    errors = [abs(math.log(outcome.gain / outcome.advice.gain)) for outcome in outcomes]
    figures = {
        "followed": len(outcomes),
        "held": sum(outcome.holds for outcome in outcomes),
        "helped": sum(outcome.gain > 1 for outcome in outcomes),
        "median_error": round(math.exp(statistics.median(errors)) - 1, 3) if errors else None,
        "gains": {o.name: [round(o.advice.gain, 2), round(o.gain, 2)] for o in outcomes},
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
