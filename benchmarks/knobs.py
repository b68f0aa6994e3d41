"""What each setting does to the speed of training on this machine: one change at a time from the defaults, in turn.

    python benchmarks/knobs.py [--folder PICTURES] [--rounds 5] [--seconds 3] [--width 1.0] [--only NAME ...]

Two steps are built side by side, the defaults and the defaults with one change, and run in turn for a few seconds each;
the first turn of each is left out. The effect is the median of the ratios of neighbouring turns, with the lowest and
highest. Settings of a whole process (allocator, threads) are put in force for each turn. Without --folder the pictures
are generated. A setting that this machine does not allow is listed with the reason. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import statistics
import time
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from trainables import vgg19_cifar10
from trainables.build import build
from trainables.contract import Data, InfeasibleError, Resources
from trainables.machine.allocator import allocating
from trainables.pictures.cifar10 import Pictures, locate, split, training_pictures
from trainables.pictures.loaders import Batches, Plan, training_batches
from trainables.pictures.transfer import Batch
from trainables.settings import Settings, checked, parsed
from trainables.stages import Timeline

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CORES = len(os.sched_getaffinity(0))
RESOURCES = Resources(CORES, int(DEVICE.type == "cuda"))
CHANGES: tuple[dict[str, Any], ...] = (
    {},  # nothing: how far two equal ones differ
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
    """A configuration that trains for some seconds whenever it is its turn."""

    def __init__(self, config: Mapping[str, Any], data: Data, pictures: Pictures) -> None:
        self.settings = Settings(**checked(config, vgg19_cifar10.PARAMETERS or {}))
        self._off = Timeline(DEVICE)
        with self._in_force():
            self._step = build(self.settings, pictures.num_classes, DEVICE)
            self._step.set_learning_rate(self.settings.learning_rate / 100)
            plan = Plan(split(pictures.labels, data)[0], self.settings.batch_size, self.settings.seed)
            workers = {"num_workers": self.settings.num_workers, "pin_memory": self.settings.pin_memory}
            self.batches: Batches = training_batches(self.settings.loader, pictures, plan, DEVICE, **workers)
        self._stream = self._endless()

    def rate(self, seconds: float) -> float:
        """Images per second of a turn of two steps or more; one step before it is left out."""
        with self._in_force():
            self._train()
            _synchronize()
            started, steps = time.perf_counter(), 0
            while steps < 2 or time.perf_counter() - started < seconds:
                self._train()
                steps += 1
            _synchronize()
        return steps * self.settings.batch_size / (time.perf_counter() - started)

    def _train(self) -> None:
        self._step(*next(self._stream), self._off)

    def _endless(self) -> Iterator[Batch]:
        for epoch in range(1, 1_000_000):
            yield from self.batches.epoch(epoch, self._off)

    @contextlib.contextmanager
    def _in_force(self) -> Iterator[None]:
        torch.set_num_threads(self.settings.threads or CORES)
        torch.set_flush_denormal(self.settings.flush_denormals)
        with allocating(self.settings.allocator):
            yield
        torch.set_flush_denormal(False)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", help="with train/<class>/<picture>")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of a turn")
    parser.add_argument("--width", type=float, default=1.0)
    parser.add_argument("--only", nargs="+", help="changes of these settings")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="for both sides")
    options = parser.parse_args()
    base = {"width": options.width, **{word.partition("=")[0]: parsed(word.partition("=")[2]) for word in options.set}}
    data = locate(Data("folder", options.folder) if options.folder else Data("generated", train_images=8192))
    changes = [change for change in CHANGES if not options.only or set(change) & set(options.only)]
    torch.backends.cudnn.benchmark = True
    print(f"{CORES} cores, {DEVICE.type}, torch {torch.__version__}, load {os.getloadavg()[0]:.1f}, {data.name}")
    print("| change from the defaults | rate against theirs (lowest to highest) | defaults, images/s |")
    print("| --- | --- | --- |")
    results = {}
    for change in changes:
        name = ", ".join(f"{key} {value}" for key, value in change.items()) or "nothing"
        results[name] = _compared(name, base, change, data, options.rounds, options.seconds)
        gc.collect()
    print(json.dumps({name: result for name, result in results.items() if result is not None}))


def _compared(
    name: str, base: Mapping[str, Any], change: Mapping[str, Any], data: Data, rounds: int, seconds: float
) -> dict[str, float] | None:
    """One row; None: not here."""
    try:
        vgg19_cifar10.layout({**base, **change}, RESOURCES)
        pictures = training_pictures(data)
        runners = [Runner({**base, **extra}, data, pictures) for extra in ({}, change)]
    except InfeasibleError as error:
        print(f"| {name} | not here: {error} | |", flush=True)
        return None
    turns: list[tuple[float, float]] = []
    try:
        for number in range(rounds + 1):
            order = (0, 1) if number % 2 == 0 else (1, 0)
            rates = {i: runners[i].rate(seconds) for i in order}
            turns.append((rates[0], rates[1]))
    finally:
        for runner in runners:
            runner.batches.close()
    ratios = [changed / plain for plain, changed in turns[1:]]
    rate = statistics.median(plain for plain, _ in turns[1:])
    row = {"ratio": statistics.median(ratios), "low": min(ratios), "high": max(ratios), "images_per_second": rate}
    print(f"| {name} | {row['ratio']:.3f} ({row['low']:.3f} to {row['high']:.3f}) | {rate:,.1f} |", flush=True)
    return {key: round(value, 4) for key, value in row.items()}


def _synchronize() -> None:
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
