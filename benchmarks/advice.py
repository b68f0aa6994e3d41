"""Whether advice is worth following: probe a configuration, take its first advice, probe again, compare the gains.

    python benchmarks/advice.py [--data folder --root pictures] [--repeats 3]

The two are probed in turn, `--repeats` times each, and compared by the median of the ratios. Advice holds if the
measured gain is one, and within a quarter of the expected one. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainables.contract import Advice, Data, InfeasibleError, Resources, Trainable, load_trainable
from trainables.train import LocalWorker

NARROW = {"width": 0.03125, "batch_size": 256}
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "input-bound, loading by itself": {**NARROW, "loader": "workers", "num_workers": 0},
    "input-bound, one loader process": {**NARROW, "loader": "workers", "num_workers": 1},
    "compute-bound, fp32": {"precision": "fp32"},
    "compute-bound, fp32, the library's kernels": {"precision": "fp32", "conv_kernel": "library"},
    "compute-bound, half the width, fp32": {"precision": "fp32", "width": 0.5},
    "compute-bound, contiguous pictures": {"memory_format": "contiguous"},
    "compute-bound, the library's kernels": {"conv_kernel": "library"},
    "compute-bound, the system's allocator": {"allocator": "system"},
    "compute-bound, one thread": {"threads": 1},
    "small batches": {"batch_size": 8},
    "small batches, a quarter of the width": {"batch_size": 8, "width": 0.25},
}
TOLERANCE = 1.25  # by which expected and measured gain may differ


@dataclass(frozen=True)
class Outcome:
    """What became of one piece of advice."""

    name: str
    bound_by: str
    advice: Advice
    measured: list[float]  # gains, one by repeat

    @property
    def gain(self) -> float:
        """The median."""
        return statistics.median(self.measured)

    @property
    def holds(self) -> bool:
        """Whether it helped, by about what it promised."""
        return self.gain > 1 and 1 / TOLERANCE <= self.gain / self.advice.gain <= TOLERANCE


def probe(trainable: Trainable, config: Mapping[str, Any], data: Data, resources: Resources) -> dict[str, float]:
    """Metrics of one probe, in this process."""
    with tempfile.TemporaryDirectory() as folder:
        worker = LocalWorker(Path(folder), data=data, resources=resources)
        trainable.probe(config, worker)
    return dict(worker.reported[-1].metrics)


def follow(
    name: str, config: dict[str, Any], trainable: Trainable, data: Data, resources: Resources, repeats: int
) -> Outcome | None:
    """Probe, change what the first advice says, probe again, and so on; None: there is no advice that can be tried."""
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
    """Print the table, and the figures as JSON in the last line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--trainable", default="vgg19_cifar10")
    parser.add_argument("--data", default="auto", choices=("auto", "cifar10", "folder", "generated"))
    parser.add_argument("--root", help="where the pictures are")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", nargs="+", metavar="WORD", help="configurations with one of these words in the name")
    options = parser.parse_args()

    trainable = load_trainable(options.trainable)
    data = trainable.locate_data(Data(name=options.data, root=options.root))
    resources = Resources(cpus=os.cpu_count() or 1)
    print(f"{trainable.describe_data(data)}; {resources.cpus} cores; load {os.getloadavg()[0]:.1f}")
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
        a, low, high = outcome.advice, min(outcome.measured), max(outcome.measured)
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
