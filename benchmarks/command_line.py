"""Command line of the benchmarks: settings of a training, and trainings in child processes."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from trainables.contract import Data, Resources
from trainables.machine.devices import synchronize
from trainables.setting_check import checked
from trainables.setting_text import parsed
from trainables.vgg19_cifar10 import trainable as vgg19_cifar10
from trainables.vgg19_settings import Vgg19Settings

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CORES = len(os.sched_getaffinity(0))
RESOURCES = Resources(CORES, int(DEVICE.type == "cuda"))


def parser_of(documentation: str) -> argparse.ArgumentParser:
    """Return a parser whose help is the module's docstring."""
    return argparse.ArgumentParser(description=documentation, formatter_class=argparse.RawDescriptionHelpFormatter)


def parse_settings(words: Iterable[str]) -> dict[str, Any]:
    """Parse settings that are written as NAME=VALUE."""
    return {name: parsed(value) for name, _, value in (word.partition("=") for word in words)}


def settings_of(config: Mapping[str, Any]) -> Vgg19Settings:
    """Return the settings of VGG-19 for `config`, with the defaults of the parameters that it leaves out."""
    return Vgg19Settings(**checked(config, vgg19_cifar10.PARAMETERS or {}))


def conditions() -> str:
    """Return the number of cores and the load of the machine, for the first line of a report."""
    return f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"


def rate_of_turn(train: Callable[[], object], batch_size: int, seconds: float) -> float:
    """Return the images per second of `train`, which does a step, over at least two steps after a discarded one."""
    train()
    synchronize(DEVICE)
    started, steps = time.perf_counter(), 0
    while steps < 2 or time.perf_counter() - started < seconds:
        train()
        steps += 1
    synchronize(DEVICE)
    return steps * batch_size / (time.perf_counter() - started)


def run_training(config: Mapping[str, Any], data: Data, folder: Path, *, probe: bool) -> dict[str, float]:
    """Train or probe `config` by `python -m trainables.train`; return what was measured last."""
    options = ["--folder", str(folder), "--data", data.name, "--val-images", str(data.val_images)]
    options += ["--root", data.root] if data.root else []
    options += ["--train-images", str(data.train_images)] if data.train_images else []
    options += ["--probe"] if probe else []
    words = [f"{name}={str(value).lower()}" for name, value in config.items()]
    command = [sys.executable, "-m", "trainables.train", "--json", *options, *words]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    found = [json.loads(line) for line in lines if line.startswith("{")]
    measured: dict[str, float] = next(each["metrics"] for each in reversed(found) if "metrics" in each)
    return measured
