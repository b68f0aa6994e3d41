"""Conditions of the GPU benchmark: sources, GPU, driver and versions."""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from trainables.contract import Data
from trainables.machine.processor import name_and_generation
from trainables.vgg19_cifar10 import trainable as vgg19_cifar10

ROOT = Path(__file__).parents[1]
PACKAGES = ("torch", "torchvision", "triton", "numpy", "pillow")
EMULATED_GPU = "Emulated GPU"  # name of the device in tests/emulated_gpu
NOT_COMPARED = ("date", "command", "load")


def conditions_of(options: argparse.Namespace, data: Data) -> dict[str, Any]:
    """Return the conditions as plain data."""
    properties = torch.cuda.get_device_properties(0)
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "command": options.command,
        "commit": options.commit or commit(),
        "gpu": properties.name,
        "emulated": is_emulated(),
        "gpu_memory_gib": round(properties.total_memory / 2**30, 1),
        "multiprocessors": properties.multi_processor_count,
        "power_limit_watts": nvml(lambda nvml, gpu: nvml.nvmlDeviceGetPowerManagementLimit(gpu) / 1e3),
        "driver": nvml(lambda nvml, gpu: str(nvml.nvmlSystemGetDriverVersion())),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version() if torch.backends.cudnn.enabled else None,  # type: ignore[no-untyped-call]
        "versions": {"python": platform.python_version(), **versions()},
        "processor": name_and_generation(),
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 1),
        "data": vgg19_cifar10.describe_data(data),
        "small": options.small,
    }


def is_emulated() -> bool:
    """Return True on the emulated GPU of the tests, whose rates say nothing about any GPU."""
    return torch.cuda.get_device_name(0) == EMULATED_GPU


def difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """Describe the first condition that differs; None: none does."""
    for name, value in now.items():
        if name not in NOT_COMPARED and before.get(name) != value:
            return f"the steps in the folder were measured with {name} {before.get(name)}, not {value}"
    return None


def commit() -> str:
    """Return the commit of these sources, with a note if they were changed after it."""
    hashed = git("rev-parse", "--short", "HEAD")
    if hashed is None:
        return "unknown"
    return f"{hashed} with changes" if git("status", "--porcelain", "--untracked-files=no") else hashed


def git(*words: str) -> str | None:
    """Return what git prints; None: there is no git, or no repository."""
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def versions() -> dict[str, str]:
    """Return the versions of the installed packages."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def nvml(read: Callable[[Any, Any], float | str]) -> float | str | None:
    """Return a property of the first GPU that PyTorch sees; None: it is not readable."""
    try:
        import pynvml

        pynvml.nvmlInit()
        uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
        return read(pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid))
    except Exception:  # no library, driver or permission: each release fails in its own way
        return None
