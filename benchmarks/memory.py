"""Memory as predicted before a trial beside what the trial took: each configuration trains in processes of its own.

    python benchmarks/memory.py [--root DIR] [--only 3] [--tolerance 0.15]

On a CPU what is resident in all processes of the trial at the peak; on a GPU what tensors took. Training and evaluation
are in it. Pictures are generated unless a folder or an archive is given. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from trainables.contract import Data, Resources, load_trainable

GIB = 2**30
VAL_IMAGES = 1000  # a whole batch of the evaluation for each of two processes
STEPS = 3

PLAIN = {"precision": "fp32", "memory_format": "contiguous", "allocator": "system"}
WIDE = {"width": 1.0, **PLAIN}
SLIM = {"width": 0.25, **PLAIN}
FAST = {"precision": "bf16", "memory_format": "channels_last"}
KEPT = {**FAST, "allocator": "retain"}  # the defaults
CONFIGURATIONS: list[dict[str, Any]] = [
    {**WIDE, "batch_size": 32},
    {**WIDE, "batch_size": 128},
    {**WIDE, "batch_size": 128, "memory_format": "channels_last"},
    {**WIDE, "batch_size": 128, "precision": "bf16"},
    {**WIDE, "batch_size": 128, **FAST},
    {**WIDE, "batch_size": 512, **FAST},
    {**WIDE, "batch_size": 1024, **FAST},
    {**WIDE, "batch_size": 128, **FAST, "optimizer": "adamw"},
    {**WIDE, "batch_size": 256, **FAST, "conv_kernel": "library"},
    {**WIDE, "batch_size": 64, **KEPT},
    {**WIDE, "batch_size": 256, **KEPT},
    {**WIDE, "batch_size": 512, **KEPT},
    {**WIDE, "batch_size": 512, **KEPT, "optimizer": "adamw", "conv_kernel": "library"},
    {**WIDE, "batch_size": 128, **KEPT, "precision": "fp32"},
    {**SLIM, "batch_size": 2048, **KEPT},
    {**WIDE, "batch_size": 128, **FAST, "head": "fully_connected"},
    {**SLIM, "batch_size": 128},
    {**SLIM, "batch_size": 1024},
    {**SLIM, "batch_size": 1024, **FAST, "optimizer": "adamw"},
    {**SLIM, "batch_size": 256, "loader": "workers", "num_workers": 2},
    *(
        {**sizes, "strategy": strategy, "world_size": 2}
        for strategy in ("ddp", "ring_allreduce", "parameter_server", "pipeline", "fsdp")
        for sizes in ({**SLIM, "batch_size": 512, **FAST}, {**WIDE, "batch_size": 128, **KEPT})
    ),
]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", help="where real pictures are")
    parser.add_argument("--only", type=int, nargs="+", help="numbers of configurations, from 0")
    parser.add_argument("--tolerance", type=float, default=0.15)
    options = parser.parse_args()
    known = set(load_trainable("vgg19_cifar10").PARAMETERS or ())
    chosen = [c for i, c in enumerate(CONFIGURATIONS) if set(c) <= known and i in (options.only or range(99))]
    print(f"{platform.node()}: {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {len(chosen)} configurations")
    print("| configuration | predicted GiB | measured GiB | error |")
    print("| --- | --: | --: | --: |")
    errors = [_compared(config, options.root) for config in chosen]
    worst = max(errors, key=abs)
    within = sum(abs(error) <= options.tolerance for error in errors)
    mean = sum(map(abs, errors)) / len(errors)
    figures = {"within": within, "configurations": len(errors), "worst_error": worst, "mean_absolute_error": mean}
    print(json.dumps({name: round(value, 4) for name, value in figures.items()} | {"tolerance": options.tolerance}))


def _compared(config: dict[str, Any], root: str | None) -> float:
    """Print a row; the relative error."""
    train_images = STEPS * config["batch_size"]
    data = Data("auto" if root else "generated", root, train_images=train_images, val_images=VAL_IMAGES)
    with tempfile.TemporaryDirectory() as folder:
        measured = _measured(config, data, Path(folder))
    predicted = _predicted(config, data)
    error = predicted / measured - 1
    words = " ".join(f"{name}={value}" for name, value in config.items())
    print(f"| {words} | {predicted:.3f} | {measured:.3f} | {error:+.1%} |", flush=True)
    return error


def _predicted(config: dict[str, Any], data: Data) -> float:
    trainable = load_trainable("vgg19_cifar10")
    resources = Resources(cpus=os.cpu_count() or 1, gpus=_gpus())
    needed = trainable.memory(config, trainable.locate_data(data), resources)
    assert needed is not None
    return needed.total / GIB


def _measured(config: dict[str, Any], data: Data, folder: Path) -> float:
    settings = [f"{name}={value}" for name, value in config.items()]
    where = ["--root", data.root] if data.root else []
    sizes = ["--train-images", str(data.train_images), "--val-images", str(data.val_images)]
    command = [sys.executable, "-m", "trainables.train", *settings, "--folder", str(folder), "--data", data.name]
    subprocess.run([*command, *where, *sizes], check=True, stdout=subprocess.DEVNULL)
    with (folder / "curves.csv").open(newline="") as file:
        return float(list(csv.DictReader(file))[-1]["peak_memory_gib"])


def _gpus() -> int:
    import torch

    return torch.cuda.device_count()


if __name__ == "__main__":
    main()
