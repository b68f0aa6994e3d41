"""Training rate on this machine: a textbook PyTorch loop beside ours, at the default and at the fastest batch size.

    python benchmarks/throughput.py --root PICTURES [--repeats 3] [--seconds 12] [--batches 256 512 1024]
    python benchmarks/throughput.py --root PICTURES --accuracy EPOCHS --seeds N --width W
        [--train-images COUNT] [--val-images COUNT]

The textbook loop uses a DataLoader with 2 processes over picture files, PIL transforms (RandomCrop, flip, ToTensor,
Normalize), fp32 and SGD, and sets nothing else. Both loops train the same network on the same pictures; each
measurement runs in its own process, and the loops take turns. A rate covers the whole loop after the warm-up steps,
including the time spent waiting for data. `loader_share` is the fraction of the time that our loop waits for the next
batch. The fastest batch size of our loop is one of --batches or the default. With --accuracy, both loops train for the
same number of epochs with the same hyperparameters, and are compared on the same validation pictures. The last line is
one JSON object.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from command_line import CORES, DEVICE, RESOURCES, conditions, parse_settings, parser_of, settings_of
from textbook import textbook_loader, textbook_step

from trainables import loop
from trainables.build import build
from trainables.contract import Config, Data
from trainables.local_worker import LocalWorker
from trainables.machine import isolation
from trainables.machine.ceilings import ceilings
from trainables.machine.devices import synchronize
from trainables.machine.processor import precision_of
from trainables.measure.sample_mean import mean_with_interval
from trainables.plan import Plan
from trainables.prediction.flops import training_flops_per_sample
from trainables.samples.loaders import evaluation_batches, training_batches
from trainables.samples.picture_source import training_pictures
from trainables.samples.split import split
from trainables.stages import Timeline
from trainables.step import learning_rate
from trainables.vgg19_cifar10 import trainable as vgg19_cifar10
from trainables.vgg19_settings import Vgg19Settings
from trainables.workloads import vgg19 as vgg19_workload

WARMUP_IMAGES, MIN_STEPS = 512, 3  # at a large batch the textbook loop takes 10 s for one step
BATCH = 128  # the default batch size
# Vgg19Settings that a GPU gets beside the defaults when the batch size is free.
BEST = {"loader": "device", "cuda_graphs": True} if DEVICE.type == "cuda" else {}


def main() -> None:
    """Compare the rates, or with --accuracy the accuracies."""
    parser = parser_of(__doc__)
    parser.add_argument("--root", type=Path, required=True, help="folder with train/<class>/<picture>")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=12.0, help="minimum duration of each measurement")
    parser.add_argument(
        "--batches", type=int, nargs="+", default=[256, 512, 1024], help=f"batch sizes to try beside {BATCH}"
    )
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="NAME=VALUE", help="settings of our loop at its best, or in --accuracy"
    )
    parser.add_argument("--accuracy", type=int, metavar="EPOCHS")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0, help="lets several processes share the seeds")
    parser.add_argument("--width", type=float, default=1.0)
    parser.add_argument("--train-images", type=int)
    parser.add_argument("--val-images", type=int, default=5000, help="more pictures make the accuracy more precise")
    parser.add_argument("--side", choices=("textbook", "ours"), help=argparse.SUPPRESS)
    parser.add_argument("--config", type=json.loads, default={}, help=argparse.SUPPRESS)
    options = parser.parse_args()
    data = Data("folder", str(options.root), train_images=options.train_images, val_images=options.val_images)
    if options.side:
        rate_of = {"textbook": textbook_rate, "ours": our_rate}[options.side]
        print(json.dumps(rate_of(data, options.config, options.seconds)))
    elif options.accuracy:
        compare_accuracy(options, data)
    else:
        compare_rates(options)


# --- rates ------------------------------------------------------------------------------------------------------------


def compare_rates(options: argparse.Namespace) -> None:
    """Measure both loops in turn; print a table and the figures."""
    print(f"{conditions()}, {DEVICE.type}, torch {torch.__version__}", flush=True)
    extra = {**BEST, **parse_settings(options.set)}
    batches = sorted({BATCH, *options.batches})
    tried = {batch: measure(options, "ours", {**extra, "batch_size": batch})["rate"] for batch in batches}
    print("tried once: " + ", ".join(f"batch {batch}: {rate:,.0f} images/s" for batch, rate in tried.items()))
    batch = max(tried, key=lambda batch: tried[batch])
    default, best = {"batch_size": BATCH}, {**extra, "batch_size": batch}
    sides = [("textbook", default), ("ours", default), ("textbook", {"batch_size": batch}), ("ours", best)]
    labels = [f"{side}, " + ", ".join(f"{name} {value}" for name, value in config.items()) for side, config in sides]
    distinct = dict(zip(labels, sides, strict=True))  # fewer than four where the default batch size is the fastest
    found: dict[str, list[dict[str, float]]] = {label: [] for label in distinct}
    for _ in range(options.repeats):
        for label, (side, config) in distinct.items():
            found[label].append(measure(options, side, config))
            print(f"{label}: {found[label][-1]['rate']:,.1f} images/s", flush=True)
    print("| side | images/s, median (lowest to highest) |\n| --- | --- |")
    medians = {}
    for label, measurements in found.items():
        rates = [measurement["rate"] for measurement in measurements]
        medians[label] = round(statistics.median(rates), 1)
        print(f"| {label} | {medians[label]:,.1f} ({min(rates):,.1f} to {max(rates):,.1f}) |")
    print(json.dumps(figures_of([found[label] for label in labels], best) | {"images_per_second": medians}))


Measurements = list[dict[str, float]]  # one for each repeat


def figures_of(sides: Sequence[Measurements], best: Config) -> dict[str, Any]:
    """Return the ratios of the two loops, and the fraction of the processor's matrix rate that ours reaches.

    `sides`: textbook and ours at the default batch size, textbook and ours at the fastest.
    """
    _, ours, _, ours_best = sides
    plain, default, plain_best, fastest = ([measurement["rate"] for measurement in side] for side in sides)
    flops = training_flops_per_sample(settings_of({}), vgg19_workload.shape_for(10))
    assert flops is not None
    matrix_rates = ceilings(CORES, DEVICE).matrix_teraflops_per_second
    precision, best_precision = (precision_of(settings_of(x).precision, DEVICE.type) for x in ({}, best))
    return {
        "ratio_batch_128": _median_ratio(default, plain),
        # the textbook loop may choose its batch size too
        "ratio_best_batch": _median_ratio(fastest, [max(pair) for pair in zip(plain, plain_best, strict=True)]),
        "fraction_of_matrix_rate": _share(fastest, flops, matrix_rates[best_precision]),
        "fraction_of_matrix_rate_batch_128": _share(default, flops, matrix_rates[precision]),
        "loader_share": round(statistics.median(measurement["loader_share"] for measurement in ours), 4),
        "loader_share_best_batch": round(
            statistics.median(measurement["loader_share"] for measurement in ours_best), 4
        ),
        "matrix_teraflops_per_second": round(matrix_rates[precision], 3),
        "precision": precision,
        "precision_best": best_precision,
        "repeats": len(plain),
    }


def _median_ratio(ours: list[float], theirs: list[float]) -> float:
    """Return the median over the repeats, in each of which both sides were measured."""
    return round(statistics.median(a / b for a, b in zip(ours, theirs, strict=True)), 3)


def _share(images_per_second: list[float], flops_per_image: float, teraflops_per_second: float) -> float:
    return round(statistics.median(images_per_second) * flops_per_image / (teraflops_per_second * 1e12), 3)


def measure(options: argparse.Namespace, side: str, config: Config) -> dict[str, float]:
    """Return the rate and the loader's share of one side, measured in its own process."""
    command = [sys.executable, __file__, "--root", str(options.root), "--seconds", str(options.seconds), "--side", side]
    done = subprocess.run([*command, "--config", json.dumps(config)], check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def textbook_rate(data: Data, config: Config, seconds: float) -> dict[str, float]:
    """Measure the textbook loop in this process."""
    _, step = textbook_step(settings_of(config), 10)
    loader = textbook_loader(data, config["batch_size"])
    return _rate((batch for _ in itertools.count() for batch in loader), step, config["batch_size"], seconds)


def our_rate(data: Data, config: Config, seconds: float) -> dict[str, float]:
    """Measure our loop in this process."""
    settings, timeline = settings_of(config), Timeline(DEVICE)

    def work() -> dict[str, float]:
        torch.backends.cudnn.benchmark = True
        pictures = training_pictures(data)
        plan = Plan(split(pictures.labels, data)[0], settings.batch_size, settings.seed)
        step = build(settings, vgg19_workload.shape_for(pictures.num_classes), DEVICE)
        step.set_learning_rate(settings.learning_rate / 100)
        batches = training_batches(
            settings.loader, pictures, plan, DEVICE, num_workers=settings.num_workers, pin_memory=settings.pin_memory
        )
        stream = (batch for epoch in itertools.count(1) for batch in batches.epoch(epoch, timeline))
        return _rate(stream, lambda images, labels: step(images, labels, timeline), settings.batch_size, seconds)

    return isolation.isolated(
        work, threads=CORES, allocator=settings.allocator, flush_denormals=settings.flush_denormals
    )


def _rate(stream: Iterator[Any], step: Any, batch_size: int, seconds: float) -> dict[str, float]:
    """Return the images per second after the warm-up, and the fraction of that time spent waiting for batches."""
    for _ in range(max(2, WARMUP_IMAGES // batch_size)):
        step(*next(stream))
    synchronize(DEVICE)
    started, waiting, steps = time.perf_counter(), 0.0, 0
    while steps < MIN_STEPS or time.perf_counter() - started < seconds:
        requested = time.perf_counter()
        batch = next(stream)
        waiting += time.perf_counter() - requested
        step(*batch)
        steps += 1
    synchronize(DEVICE)
    total = time.perf_counter() - started
    return {"rate": steps * batch_size / total, "loader_share": waiting / total}


# --- accuracy ---------------------------------------------------------------------------------------------------------


def compare_accuracy(options: argparse.Namespace, data: Data) -> None:
    """Train both loops for the same number of epochs with each seed; print the validation accuracies."""
    epochs, seeds, width = options.accuracy, options.seeds, options.width
    found: dict[str, list[float]] = {"textbook": [], "ours": []}
    for seed in range(options.first_seed, options.first_seed + seeds):
        config = {"width": width, "seed": seed, "batch_size": BATCH}
        found["textbook"].append(_textbook_accuracy(settings_of(config), data, epochs))
        with tempfile.TemporaryDirectory() as folder:
            worker = LocalWorker(Path(folder), epochs, data, RESOURCES)
            vgg19_cifar10.train(config | parse_settings(options.set), worker)
        found["ours"].append(worker.reported[-1].metrics["val_accuracy"])
        print(f"seed {seed}: textbook {found['textbook'][-1]:.4f}, ours {found['ours'][-1]:.4f}", flush=True)
    differences = [a - b for a, b in zip(found["ours"], found["textbook"], strict=True)]
    error = statistics.stdev(differences) / seeds**0.5 if seeds > 1 else None
    figures = {
        **{f"val_accuracy_{name}": round(statistics.mean(values), 4) for name, values in found.items()},
        "difference_points": round(100 * statistics.mean(differences), 2),
        "standard_error_points": None if error is None else round(100 * error, 2),
    }
    print(json.dumps(figures | {"epochs": epochs, "seeds": seeds, "width": width}))


def _textbook_accuracy(settings: Vgg19Settings, data: Data, epochs: int) -> float:
    pictures = training_pictures(data)
    training, validation = split(pictures.labels, data)
    assert pictures.files is not None
    loader = textbook_loader(data, settings.batch_size, [str(pictures.files[i]) for i in training])
    model, step = textbook_step(settings, pictures.num_classes)
    steps_per_epoch = len(training) // settings.batch_size
    for epoch in range(epochs):
        for i, (images, labels) in enumerate(loader):
            done = epoch * steps_per_epoch + i
            step(images, labels, learning_rate(done, epochs * steps_per_epoch, settings))
    fp32 = settings_of({"precision": "fp32", "memory_format": "contiguous"})
    batches = evaluation_batches(pictures, validation, DEVICE)
    found = loop.evaluate(model, batches, fp32, DEVICE, rank=0, world_size=1)["val_accuracy"]
    return mean_with_interval("val_accuracy", found)["val_accuracy"]


if __name__ == "__main__":
    main()
