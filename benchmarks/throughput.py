"""How fast training is here: a textbook loop beside ours, at its defaults and with its best batch, in turn.

    python benchmarks/throughput.py --root PICTURES [--repeats 3] [--seconds 12] [--batches 256 512 1024]
    python benchmarks/throughput.py --root PICTURES --accuracy EPOCHS --seeds N --width W
        [--train-images COUNT] [--val-images COUNT]

The textbook loop: DataLoader with 2 processes over picture files, PIL transforms (RandomCrop, flip, ToTensor,
Normalize), fp32, SGD, nothing set. Both train the same network on the same pictures, each time in a process of its own;
a rate is end to end, waiting for data included, after the steps of the warm-up. `loader_share` is the part of the time
in which ours waits for the next batch. With --accuracy both are trained for equal epochs with equal hyperparameters and
compared on the same validation pictures. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trainables import loop, vgg19_cifar10
from trainables.build import build
from trainables.contract import Data, Resources
from trainables.machine import isolation
from trainables.machine.ceilings import ceilings
from trainables.machine.processor import precision_of
from trainables.network.flops import training_flops_per_image
from trainables.network.vgg import vgg19
from trainables.pictures.cifar10 import split, training_pictures
from trainables.pictures.loaders import MEAN, STD, Plan, evaluation_batches, training_batches
from trainables.settings import Settings, checked, parsed
from trainables.stages import Timeline
from trainables.step import learning_rate
from trainables.train import LocalWorker

WARMUP_IMAGES, MIN_STEPS = 512, 3  # a large batch takes the textbook loop ten seconds
BATCH = 128
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CORES = len(os.sched_getaffinity(0))
# What a GPU is given beyond the defaults when the batch is free.
BEST = {"loader": "device", "cuda_graphs": True} if DEVICE.type == "cuda" else {}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True, help="folder with train/<class>/<picture>")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=12.0, help="of each measurement, at least")
    parser.add_argument("--batches", type=int, nargs="+", default=[256, 512, 1024], help="tried for the best one")
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="NAME=VALUE", help="more for ours: the best, or the one of --accuracy"
    )
    parser.add_argument("--accuracy", type=int, metavar="EPOCHS")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0, help="so that several processes may share the seeds")
    parser.add_argument("--width", type=float, default=1.0)
    parser.add_argument("--train-images", type=int)
    parser.add_argument("--val-images", type=int, default=5000, help="the more, the surer the accuracy")
    parser.add_argument("--side", choices=("textbook", "ours"), help=argparse.SUPPRESS)
    parser.add_argument("--config", type=json.loads, default={}, help=argparse.SUPPRESS)
    options = parser.parse_args()
    data = Data("folder", str(options.root), train_images=options.train_images, val_images=options.val_images)
    if options.side:
        print(json.dumps(SIDES[options.side](data, options.config, options.seconds)))
    elif options.accuracy:
        compare_accuracy(options, data)
    else:
        compare_rates(options)


# --- rates ------------------------------------------------------------------------------------------------------------


def compare_rates(options: argparse.Namespace) -> None:
    """Both sides in turn, each measurement in a process of its own."""
    best = {**BEST, **dict(_pair(word) for word in options.set)}
    print(f"{CORES} cores, {DEVICE.type}, torch {torch.__version__}, load {os.getloadavg()[0]:.1f}", flush=True)
    tried = {batch: _measured(options, "ours", {**best, "batch_size": batch})["rate"] for batch in options.batches}
    print("tried once: " + ", ".join(f"batch {batch}: {rate:,.0f} images/s" for batch, rate in tried.items()))
    best["batch_size"] = max(tried, key=lambda batch: tried[batch])
    free = {"batch_size": best["batch_size"]}
    sides = {
        f"textbook, batch {BATCH}": ("textbook", {"batch_size": BATCH}),
        f"ours, defaults, batch {BATCH}": ("ours", {"batch_size": BATCH}),
        f"textbook, batch {best['batch_size']}": ("textbook", free),
        f"ours, best: {_words(best)}": ("ours", best),
    }
    found: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for _ in range(options.repeats):
        for name, (side, config) in sides.items():
            found[name].append(_measured(options, side, config))
            print(f"{name}: {found[name][-1]['rate']:,.1f} images/s", flush=True)
    _report(found, best)


def _report(found: Mapping[str, list[dict[str, float]]], best: Mapping[str, Any]) -> None:
    rates = {name: [each["rate"] for each in some] for name, some in found.items()}
    print("| side | images/s, median (lowest to highest) |\n| --- | --- |")
    for name, some in rates.items():
        print(f"| {name} | {statistics.median(some):,.1f} ({min(some):,.1f} to {max(some):,.1f}) |")
    plain, ours, plain_free, ours_free = rates.values()
    defaults, last = list(found.values())[1], list(found.values())[3]
    best_textbook = [max(pair) for pair in zip(plain, plain_free, strict=True)]  # its batch is free as well
    flops = training_flops_per_image(_settings({}), 10)
    rates_of_matrices = ceilings(CORES, DEVICE).matrix_teraflops_per_second
    precision, free_precision = (precision_of(_settings(x).precision, DEVICE.type) for x in ({}, best))
    rate, free_rate = (rates_of_matrices[each] * 1e12 for each in (precision, free_precision))
    result = {
        "ratio_batch_128": _ratio(ours, plain),
        "ratio_best_batch": _ratio(ours_free, best_textbook),
        "fraction_of_matrix_rate": round(statistics.median(ours_free) * flops / free_rate, 3),
        "fraction_of_matrix_rate_batch_128": round(statistics.median(ours) * flops / rate, 3),
        "loader_share": round(statistics.median(each["loader_share"] for each in defaults), 4),
        "loader_share_best_batch": round(statistics.median(each["loader_share"] for each in last), 4),
        "matrix_teraflops_per_second": round(rate / 1e12, 3),
        "precision": precision,
        "precision_best": free_precision,
        "images_per_second": {name: round(statistics.median(some), 1) for name, some in rates.items()},
        "repeats": len(plain),
    }
    print(json.dumps(result))


def _ratio(ours: list[float], theirs: list[float]) -> float:
    """The median over the repeats, which were measured side by side."""
    return round(statistics.median(a / b for a, b in zip(ours, theirs, strict=True)), 3)


def _measured(options: argparse.Namespace, side: str, config: Mapping[str, Any]) -> dict[str, float]:
    command = [sys.executable, __file__, "--root", str(options.root), "--seconds", str(options.seconds), "--side", side]
    done = subprocess.run([*command, "--config", json.dumps(config)], check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def textbook(data: Data, config: Mapping[str, Any], seconds: float) -> dict[str, float]:
    """Its rate."""
    _, step = _textbook_step(_settings(config), 10)
    return _rate(_endless(_textbook_loader(data, config["batch_size"])), step, config["batch_size"], seconds)


def ours(data: Data, config: Mapping[str, Any], seconds: float) -> dict[str, float]:
    """Our rate at this configuration."""
    settings, off = _settings(config), Timeline(DEVICE)

    def work() -> dict[str, float]:
        torch.backends.cudnn.benchmark = True
        pictures = training_pictures(data)
        plan = Plan(split(pictures.labels, data)[0], settings.batch_size, settings.seed)
        step = build(settings, pictures.num_classes, DEVICE)
        step.set_learning_rate(settings.learning_rate / 100)
        batches = training_batches(
            settings.loader, pictures, plan, DEVICE, num_workers=settings.num_workers, pin_memory=settings.pin_memory
        )
        stream = (batch for epoch in range(1, 1_000_000) for batch in batches.epoch(epoch, off))
        return _rate(stream, lambda images, labels: step(images, labels, off), settings.batch_size, seconds)

    return isolation.isolated(
        work, threads=CORES, allocator=settings.allocator, flush_denormals=settings.flush_denormals
    )


SIDES = {"textbook": textbook, "ours": ours}


def _rate(stream: Iterator[Any], step: Any, batch_size: int, seconds: float) -> dict[str, float]:
    """Images per second after the warm-up, and the part of that time in which the next batch was waited for."""
    for _ in range(max(2, WARMUP_IMAGES // batch_size)):
        step(*next(stream))
    _synchronize()
    started, waited, steps = time.perf_counter(), 0.0, 0
    while steps < MIN_STEPS or time.perf_counter() - started < seconds:
        asked = time.perf_counter()
        batch = next(stream)
        waited += time.perf_counter() - asked
        step(*batch)
        steps += 1
    _synchronize()
    total = time.perf_counter() - started
    return {"rate": steps * batch_size / total, "loader_share": waited / total}


def _synchronize() -> None:
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


# --- the textbook loop ------------------------------------------------------------------------------------------------


def _textbook_loader(data: Data, batch_size: int, only: Iterable[str] | None = None) -> Iterable[Any]:
    """Over the files of `data`, or of these paths only."""
    from torch.utils.data import DataLoader, Subset
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    transform = transforms.Compose(
        [
            transforms.RandomCrop(32, padding=4),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )
    assert data.root is not None
    folder: Any = ImageFolder(str(Path(data.root) / "train"), transform)
    if only is not None:
        places = {os.path.realpath(path): i for i, (path, _) in enumerate(folder.samples)}
        folder = Subset(folder, [places[os.path.realpath(path)] for path in only])
    return DataLoader(folder, batch_size, shuffle=True, num_workers=2, drop_last=True)


def _textbook_step(settings: Settings, num_classes: int) -> tuple[nn.Module, Any]:
    """The network, and a step that takes a batch and perhaps a learning rate."""
    torch.manual_seed(settings.seed)
    model = vgg19(num_classes, width=settings.width).to(DEVICE)
    criterion = nn.CrossEntropyLoss(label_smoothing=settings.label_smoothing)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=1e-3, momentum=settings.momentum, weight_decay=settings.weight_decay, nesterov=True
    )

    def step(images: Tensor, labels: Tensor, rate: float = 1e-3) -> None:
        optimizer.param_groups[0]["lr"] = rate
        images, labels = images.to(DEVICE), labels.to(DEVICE)
        optimizer.zero_grad()
        criterion(model(images), labels).backward()
        optimizer.step()

    return model, step


def _endless(loader: Iterable[Any]) -> Iterator[Any]:
    while True:
        yield from loader


# --- accuracy ---------------------------------------------------------------------------------------------------------


def compare_accuracy(options: argparse.Namespace, data: Data) -> None:
    """Validation accuracy of both after equal epochs."""
    epochs, seeds, width = options.accuracy, options.seeds, options.width
    found: dict[str, list[float]] = {"textbook": [], "ours": []}
    for seed in range(options.first_seed, options.first_seed + seeds):
        config = {"width": width, "seed": seed, "batch_size": BATCH}
        found["textbook"].append(_textbook_accuracy(_settings(config), data, epochs))
        with tempfile.TemporaryDirectory() as folder:
            worker = LocalWorker(Path(folder), epochs, data, Resources(CORES, int(DEVICE.type == "cuda")))
            vgg19_cifar10.train({**config, **dict(_pair(word) for word in options.set)}, worker)
        found["ours"].append(worker.reported[-1].metrics["val_accuracy"])
        print(f"seed {seed}: textbook {found['textbook'][-1]:.4f}, ours {found['ours'][-1]:.4f}", flush=True)
    means = {name: statistics.mean(values) for name, values in found.items()}
    differences = [a - b for a, b in zip(found["ours"], found["textbook"], strict=True)]
    spread = statistics.stdev(differences) / seeds**0.5 if seeds > 1 else None
    print(
        json.dumps(
            {
                **{f"val_accuracy_{name}": round(mean, 4) for name, mean in means.items()},
                "difference_points": round(100 * statistics.mean(differences), 2),
                "standard_error_points": None if spread is None else round(100 * spread, 2),
                "epochs": epochs,
                "seeds": seeds,
                "width": width,
            }
        )
    )


def _textbook_accuracy(settings: Settings, data: Data, epochs: int) -> float:
    pictures = training_pictures(data)
    training, validation = split(pictures.labels, data)
    files = pictures.files
    assert files is not None
    loader = _textbook_loader(data, settings.batch_size, [str(files[i]) for i in training])
    model, step = _textbook_step(settings, pictures.num_classes)
    steps_per_epoch = len(training) // settings.batch_size
    for epoch in range(epochs):
        for i, (images, labels) in enumerate(loader):
            done = epoch * steps_per_epoch + i
            step(images, labels, learning_rate(done, epochs * steps_per_epoch, settings.learning_rate))
    fp32 = _settings({"precision": "fp32", "memory_format": "contiguous"})
    return loop.evaluate(model, evaluation_batches(pictures, validation, DEVICE), fp32, DEVICE)[1]


# --- settings ---------------------------------------------------------------------------------------------------------


def _settings(config: Mapping[str, Any]) -> Settings:
    return Settings(**checked(config, vgg19_cifar10.PARAMETERS or {}))


def _pair(word: str) -> tuple[str, Any]:
    name, _, value = word.partition("=")
    return name, parsed(value)


def _words(config: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in config.items())


if __name__ == "__main__":
    main()
