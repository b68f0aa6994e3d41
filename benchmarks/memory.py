"""Predicted memory beside measured memory: each configuration trains in child processes.

    python benchmarks/memory.py [--root DIR] [--only 3] [--tolerance 0.15]

On a CPU, the memory is the peak resident memory of all processes of the trial; on a GPU, it is the memory that
PyTorch's allocator reserved on the fullest one. It includes training and evaluation. Without --root, the images are
generated. The last line is one JSON object.
"""

from __future__ import annotations

import json
import os
import platform
import tempfile
from pathlib import Path
from typing import Any

import torch
from command_line import conditions, parser_of, run_training

from trainables.contract import Data, Resources, load_trainable

GIB = 2**30
VAL_IMAGES = 1000  # one full evaluation batch for each of two processes
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
    """Print a table of predicted and measured memory."""
    parser = parser_of(__doc__)
    parser.add_argument("--root", help="folder of real images")
    parser.add_argument("--only", type=int, nargs="+", help="numbers of the configurations to run, from 0")
    parser.add_argument("--tolerance", type=float, default=0.15)
    options = parser.parse_args()
    known = set(load_trainable("vgg19_cifar10").PARAMETERS or ())
    chosen = [c for i, c in enumerate(CONFIGURATIONS) if set(c) <= known and i in (options.only or range(99))]
    print(f"{platform.node()}: {conditions()}, {len(chosen)} configurations")
    print("| configuration | predicted GiB | measured GiB | error |")
    print("| --- | --: | --: | --: |")
    errors = [_relative_error(config, options.root) for config in chosen]
    worst = max(errors, key=abs)
    figures = {
        "within": sum(abs(error) <= options.tolerance for error in errors),
        "configurations": len(errors),
        "worst_error": round(worst, 4),
        "mean_absolute_error": round(sum(map(abs, errors)) / len(errors), 4),
        "tolerance": options.tolerance,
    }
    print(json.dumps(figures))


def _relative_error(config: dict[str, Any], root: str | None) -> float:
    """Train one configuration, print its row, and return the relative error of the prediction."""
    train_images = STEPS * config["batch_size"]
    data = Data("auto" if root else "generated", root, train_images=train_images, val_images=VAL_IMAGES)
    with tempfile.TemporaryDirectory() as folder:
        metrics = run_training(config, data, Path(folder), probe=False)
        measured = metrics.get("peak_reserved_gib", metrics["peak_memory_gib"])
    trainable = load_trainable("vgg19_cifar10")
    resources = Resources(cpus=os.cpu_count() or 1, gpus=torch.cuda.device_count())
    need = trainable.memory(config, trainable.locate_data(data), resources)
    assert need is not None
    predicted = need.total / GIB
    error = predicted / measured - 1
    words = " ".join(f"{name}={value}" for name, value in config.items())
    print(f"| {words} | {predicted:.3f} | {measured:.3f} | {error:+.1%} |", flush=True)
    return error


if __name__ == "__main__":
    main()
