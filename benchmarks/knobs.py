"""Effect of each setting on the training rate of this machine: one change at a time from the defaults.

    python benchmarks/knobs.py [--folder PICTURES] [--rounds 5] [--seconds 3] [--width 1.0] [--only NAME ...]

Two training steps are built, one with the defaults and one with a single change. They run in turn for a few seconds
each; the first turn of each is discarded. The effect is the median of the ratios of consecutive turns, printed with the
lowest and the highest ratio. Settings of the whole process (allocator, threads) are applied for each turn. Without
--folder the images are generated. A setting that this machine does not allow is listed with the reason. The last line
is one JSON object.
"""

from __future__ import annotations

import gc
import itertools
import json
import statistics
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from command_line import (
    CORES,
    DEVICE,
    RESOURCES,
    conditions,
    parse_settings,
    parser_of,
    rate_of_turn,
    settings_of,
)

from trainables.build import build
from trainables.contract import Data, InfeasibleError
from trainables.machine.isolation import process_settings
from trainables.plan import Batches, Plan
from trainables.samples.loaders import training_batches
from trainables.samples.picture_source import Pictures, locate, training_pictures
from trainables.samples.split import split
from trainables.stages import Timeline
from trainables.vgg19_cifar10 import trainable as vgg19_cifar10
from trainables.workloads import vgg19

CHANGES: tuple[dict[str, Any], ...] = (
    {},  # no change: the difference of two equal configurations
    {"precision": "fp32"},
    {"precision": "fp16"},
    {"memory_format": "contiguous"},
    {"conv_kernel": "library"},
    {"conv_kernel": "gemm"},
    {"allocator": "system"},
    {"fused_optimizer": False},
    {"flush_denormals": True},
    {"optimizer": "adamw"},
    {"optimizer": "adamw", "fused_optimizer": False},
    {"loader": "device"},
    {"loader": "workers"},
    {"loader": "workers", "num_workers": 1},
    {"loader": "workers", "num_workers": 2},
    {"pin_memory": True},
    {"threads": 1},
    {"batch_size": 256},
    {"batch_size": 512},
    {"compile": True},
    {"cuda_graphs": True},
)


class Runner:
    """Training of one configuration that runs for a few seconds at a time."""

    def __init__(self, config: Mapping[str, Any], data: Data, pictures: Pictures) -> None:
        self.settings = settings_of(config)
        self._timeline = Timeline(DEVICE)
        with self._process_settings():
            self._step = build(self.settings, vgg19.shape_for(pictures.num_classes), DEVICE)
            self._step.set_learning_rate(self.settings.learning_rate / 100)
            plan = Plan(split(pictures.labels, data)[0], self.settings.batch_size, self.settings.seed)
            workers: dict[str, Any] = {"num_workers": self.settings.num_workers, "pin_memory": self.settings.pin_memory}
            self.batches: Batches = training_batches(self.settings.loader, pictures, plan, DEVICE, **workers)
        self._stream = (batch for epoch in itertools.count(1) for batch in self.batches.epoch(epoch, self._timeline))

    def rate(self, seconds: float) -> float:
        """Train for at least two steps and return the images per second; discard one step before them."""
        with self._process_settings():
            return rate_of_turn(self._train, self.settings.batch_size, seconds)

    def _train(self) -> None:
        self._step(*next(self._stream), self._timeline)

    def _process_settings(self) -> AbstractContextManager[None]:
        threads = self.settings.threads or CORES
        return process_settings(threads, self.settings.allocator, self.settings.flush_denormals)


def main() -> None:
    """Print a row for each change."""
    parser = parser_of(__doc__)
    parser.add_argument("--folder", help="folder with train/<class>/<picture>")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="duration of a turn")
    parser.add_argument("--width", type=float, default=1.0)
    parser.add_argument("--only", nargs="+", help="names of the settings to change")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="settings of both sides")
    options = parser.parse_args()
    base = {"width": options.width, **parse_settings(options.set)}
    data = locate(Data("folder", options.folder) if options.folder else Data("generated", train_images=8192))
    changes = [change for change in CHANGES if not options.only or set(change) & set(options.only)]
    torch.backends.cudnn.benchmark = True
    print(f"{conditions()}, {DEVICE.type}, torch {torch.__version__}, {data.name}")
    print("| change from the defaults | ratio of the rates (lowest to highest) | defaults, images/s |")
    print("| --- | --- | --- |")
    results = {}
    for change in changes:
        name = ", ".join(f"{key} {value}" for key, value in change.items()) or "none"
        results[name] = _compared(name, base, change, data, options.rounds, options.seconds)
        gc.collect()
    print(json.dumps({name: result for name, result in results.items() if result is not None}))


def _compared(
    name: str, base: Mapping[str, Any], change: Mapping[str, Any], data: Data, rounds: int, seconds: float
) -> dict[str, float] | None:
    """Measure one change and print its row; return None if this machine does not allow it."""
    try:
        vgg19_cifar10.layout({**base, **change}, RESOURCES)
        pictures = training_pictures(data)
        runners = [Runner({**base, **extra}, data, pictures) for extra in ({}, change)]
    except InfeasibleError as error:
        print(f"| {name} | not possible here: {error} | |", flush=True)
        return None
    turns: list[tuple[float, float]] = []
    try:
        for number in range(rounds + 1):
            rates = {i: runners[i].rate(seconds) for i in ((0, 1), (1, 0))[number % 2]}
            turns.append((rates[0], rates[1]))
    finally:
        for runner in runners:
            runner.batches.close()
    ratios = [changed / plain for plain, changed in turns[1:]]
    rate = statistics.median(plain for plain, _ in turns[1:])
    row = {"ratio": statistics.median(ratios), "low": min(ratios), "high": max(ratios), "images_per_second": rate}
    print(f"| {name} | {row['ratio']:.3f} ({row['low']:.3f} to {row['high']:.3f}) | {rate:,.1f} |", flush=True)
    return {key: round(value, 4) for key, value in row.items()}


if __name__ == "__main__":
    main()
