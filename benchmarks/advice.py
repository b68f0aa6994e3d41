"""Gains that `search.advise` measures, beside a fresh measurement of each.

    python benchmarks/advice.py [--data folder --root pictures] [--minutes 2] [--only WORD ...]

For each configuration the neighbours are tried as `python -m search.advise` does. The recommended changes then take
turns beside the configuration once more, in new processes and for 100 s or 40 rounds. A gain holds if the fresh
ratio is within the interval that was published. The last line is one JSON object.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from command_line import conditions, parser_of

from search.advise.comparison import Comparisons
from search.front.differences import MOST_ROUNDS
from search.front.intervals import relative_deviation
from search.front.neighbour import Neighbour, gains
from search.front.roles import rate_metric
from search.front.settings_to_try import neighbours
from search.space.machine import describe_machine
from search.text.numbers import format_ratio
from search.train.child_process import last_metrics
from trainables.contract import Data, InfeasibleError, load_trainable

NARROW = {"width": 0.03125, "batch_size": 256}
TRAINER_LOADS = {"loader": "workers", "num_workers": 0}
FP32 = {"precision": "fp32", "memory_format": "contiguous", "conv_kernel": "library"}  # as in a plain PyTorch loop
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "input-bound, loading in the trainer": {**NARROW, **TRAINER_LOADS},
    "input-bound, one loader process": {**NARROW, "loader": "workers", "num_workers": 1},
    "plain loop, a 32nd of the width, one thread": {**FP32, **TRAINER_LOADS, **NARROW, "batch_size": 32, "threads": 1},
    "plain loop, an eighth of the width": {**FP32, **TRAINER_LOADS, "width": 0.125, "batch_size": 16},
    "plain loop, a quarter of the width": {**FP32, "width": 0.25, "batch_size": 64, "allocator": "system"},
    "plain loop, VGG11, small batches, one thread": {
        **FP32,
        "depth": 11,
        "width": 0.125,
        "batch_size": 8,
        "threads": 1,
    },
    "plain loop, a 16th of the width": {**FP32, **TRAINER_LOADS, "width": 0.0625, "batch_size": 64},
    "plain loop, VGG16, one thread": {
        **FP32,
        **TRAINER_LOADS,
        "depth": 16,
        "width": 0.0625,
        "batch_size": 16,
        "threads": 1,
    },
    "plain loop, VGG13, a quarter of the width": {**FP32, "depth": 13, "width": 0.25, "batch_size": 16},
    "a quarter of the width, fp32": {"precision": "fp32", "width": 0.25},
    "a quarter of the width, one thread": {"threads": 1, "width": 0.25},
    "a quarter of the width, small batches": {"batch_size": 8, "width": 0.25},
    "two processes, a quarter of the width": {"strategy": "ddp", "width": 0.25},
    "two processes, small batches": {**FP32, "strategy": "ddp", "width": 0.0625, "batch_size": 16},
    "a parameter server": {"strategy": "parameter_server", "width": 0.125, "batch_size": 64},
    "defaults, half the width": {"width": 0.5},
}
SECONDS_AFTER = 100.0  # for a fresh measurement


def main() -> None:
    """Print a row for each recommended change, and the figures as JSON."""
    parser = parser_of(__doc__)
    parser.add_argument("--trainable", default="vgg19_cifar10")
    parser.add_argument("--data", default="auto", choices=("auto", "cifar10", "folder", "generated"))
    parser.add_argument("--root", help="folder of the images")
    parser.add_argument("--minutes", type=float, default=2.0, help="of each advice")
    parser.add_argument("--only", nargs="+", metavar="WORD", help="configurations with one of these words in the name")
    options = parser.parse_args()

    trainable, resources = load_trainable(options.trainable), describe_machine().resources
    data = trainable.locate_data(Data(name=options.data, root=options.root))
    place = ["--data", data.name, *(["--root", data.root] if data.root else [])]
    print(f"{trainable.describe_data(data)}; {conditions()}")
    print("| configuration | error of a rate | tried | s | change | times the rate | measured again | holds |")
    print("| --- | ---: | ---: | ---: | --- | ---: | ---: | --- |")
    rows: list[dict[str, Any]] = []
    for name, config in CONFIGURATIONS.items():
        if options.only and not any(word in name for word in options.only):
            continue
        try:
            layout = trainable.layout(config, resources)
        except InfeasibleError as error:
            print(f"| {name} | - | - | - | cannot run here: {error} | | | |", flush=True)
            continue
        arguments = ["--trainable", options.trainable, *place, *(f"{key}={value}" for key, value in config.items())]
        started = time.monotonic()
        metrics = last_metrics([*arguments, "--probe"])
        verdict = trainable.explain(config, metrics, resources)
        changes = neighbours(trainable, config, resources, {}, verdict.bound_by if verdict else None)
        step_seconds = metrics.get("step_seconds", 0.0)
        deviation = relative_deviation(metrics, rate_metric(metrics))
        comparisons = Comparisons(
            arguments, layout, 60 * options.minutes, rate_deviation=deviation, step_seconds=step_seconds
        )
        tried = comparisons.run(changes)
        seconds = time.monotonic() - started
        measured = sum(each.estimate is not None for each in tried)
        for each in tried:
            if each.reason is not None:
                print(f"{name}, {each.parameter} {each.new}: {each.reason}", file=sys.stderr, flush=True)
        found = gains(tried)
        if not found:
            print(f"| {name} | {deviation:.1%} | {measured} | {seconds:.0f} | none | | | |", flush=True)
        again = [each.again() for each in found]
        if again:
            later = Comparisons(arguments, layout, SECONDS_AFTER)
            later.compare(again, SECONDS_AFTER, MOST_ROUNDS, until_decided=False)
        for each, fresh in zip(found, again, strict=True):
            rows.append(_row(name, each, fresh, seconds))
            change = f"`{each.parameter}` {each.old} → {each.new}"
            published, measured_again, holds = (rows[-1][key] for key in ("published", "fresh", "holds"))
            print(
                f"| {name} | {deviation:.1%} | {measured} | {seconds:.0f} | {change} | {format_ratio(*published)} | "
                f"{format_ratio(*measured_again)} | {'yes' if holds else 'no'} |",
                flush=True,
            )
    held = sum(row["holds"] for row in rows)
    print(json.dumps({"advice": {"gains": len(rows), "hold": held, "rows": rows}}))


def _row(name: str, each: Neighbour, fresh: Neighbour, seconds: float) -> dict[str, Any]:
    published, again = each.estimate, fresh.estimate
    assert published is not None
    assert again is not None
    return {
        "configuration": name,
        "parameter": each.parameter,
        "new": each.new,
        "published": published.ratio,
        "fresh": again.ratio,
        "holds": published.low <= again.mean <= published.high,
        "seconds": seconds,
    }


if __name__ == "__main__":
    main()
