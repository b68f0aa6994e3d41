"""The memory that a configuration takes, before it runs: by what takes it, and the largest batch that fits.

Tensors are counted by a pass without numbers (see `liveness`). What no count gives (the process with its libraries,
what they take inside an operator, holes in the heap) is what two tiny trainings on this machine took more than counted;
it is measured once and kept. Compared with measured peaks by `benchmarks/memory.py`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import multiprocessing
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch

from trainables.build import build, shapes_of_network
from trainables.contract import Data, InfeasibleError, Layout, MemoryNeed
from trainables.foresight.largest import largest
from trainables.foresight.liveness import Liveness, liveness
from trainables.machine.allocator import allocating
from trainables.machine.footprint import GIB, Footprint, available, private_bytes
from trainables.machine.kept import Figures, kept, machine
from trainables.machine.processor import precision_of, precisions
from trainables.parallel.holdings import Holding, holdings
from trainables.parallel.layouts import pictures_per_reader
from trainables.pictures import cifar10
from trainables.pictures.loaders import EVALUATION_BATCH, PREFETCHED_BATCHES, Batches, Plan, training_batches
from trainables.settings import Settings
from trainables.stages import Timeline
from trainables.step import arranged, autocast

# glibc keeps freed blocks below its largest mmap threshold in the process, and larger ones find no room among them.
HEAP_BLOCKS_BELOW = 32 * 2**20
PICTURE_BYTES = 32 * 32 * 3
BATCH_BYTES_PER_IMAGE = 16 * PICTURE_BYTES  # gathered, padded, cropped and flipped bytes, floats, a copy in its format
RETAINED = 1.12  # of the kept blocks by size is what a heap grows to, by 7 configurations (results/LOG.md)
ERROR = 0.15  # of a prediction
DOUBTFUL = 2  # as much as a typical machine would need fits anywhere

# Settings that change no tensor's size, so that one pass does for all of their values.
WITHOUT_EFFECT: dict[str, Any] = {
    "batch_size": 1,  # given apart, as that of one process
    "learning_rate": 0.1,
    "weight_decay": 0.0,
    "label_smoothing": 0.0,
    "seed": 0,
    "threads": None,
    "loader": "memory",
    "num_workers": 0,
    "pin_memory": False,
    "trace_steps": 0,
    "flush_denormals": False,
    "allocator": "retain",
    "strategy": "single",  # how many processes hold what of it, `holdings` says
    "world_size": None,
    "placement": "pack",
    "server": "synchronous",
    "batch_norm": "local",
    "num_microbatches": 1,
    "schedule": "gpipe",
}

CPU = torch.device("cpu")
log = logging.getLogger(__name__)


def predicted(settings: Settings, data: Data, layout: Layout) -> MemoryNeed:
    """Of a trial on located `data`."""
    train_images, num_classes = cifar10.training_count(data)
    device = torch.device("cuda") if layout.gpus_per_process else CPU
    return need(settings, num_classes, train_images, layout.processes, device)


def largest_within(settings: Settings, data: Data, layout: Layout, available_bytes: int) -> int:
    """The largest `batch_size` of a trial on located `data` that takes at most so many bytes; 0: none does."""
    train_images, num_classes = cifar10.training_count(data)
    device = torch.device("cuda") if layout.gpus_per_process else CPU
    return largest_batch(settings, num_classes, train_images, layout.processes, device, available_bytes)


def need(
    settings: Settings,
    num_classes: int,
    train_images: int,
    processes: int,
    device: torch.device,
    beyond: Calibration | None = None,
) -> MemoryNeed:
    """Of all processes with their loaders as `Footprint` finds it on a CPU, or of each GPU.

    `beyond` what is counted: as this machine was measured, unless given.
    """
    beyond = beyond or calibration(device)
    batch = pictures_per_reader(settings, processes)
    counted = _counted(settings, num_classes, batch, device)
    loader, pictures = _loading(settings, train_images, beyond, device, batch)
    retained = _retained(counted) if settings.allocator == "retain" and device.type == "cpu" else 0
    beside = {
        "pictures": pictures,
        "loader": loader,
        "process": beyond.process["fp32" if precision_of(settings.precision, device.type) == "fp32" else "bf16"],
    }
    each = [{**_held(counted, retained, holding), **beside} for holding in holdings(settings, processes)]
    if device.type != "cpu":
        each = [max(each, key=lambda parts: sum(parts.values()))]  # the fullest GPU
    parts = {name: sum(of_process[name] for of_process in each) for name in each[0]}
    return MemoryNeed({name: size for name, size in parts.items() if size}, available(device))


def _held(counted: Liveness, retained: int, holding: Holding) -> dict[str, int]:
    """By one process, of what is counted for one alone. No gradient travels while the network is evaluated."""
    communication = int(holding.messages * counted.gradients)
    evaluation = counted.training_and_evaluation - counted.training
    known = counted.parameters + counted.gradients + counted.optimizer + counted.activations
    return {
        "parameters": int(holding.parameters * counted.parameters),
        "gradients": int(holding.gradients * counted.gradients),
        "optimizer": int(holding.optimizer * counted.optimizer),
        "activations": int(holding.activations * counted.activations),
        "workspace": int(holding.activations * (counted.training - known)),
        "retained": int(holding.activations * retained),
        "communication": communication,
        "evaluation": max(0, evaluation - communication),  # beyond what it takes of the same place
    }


def check(settings: Settings, num_classes: int, train_images: int, processes: int, device: torch.device) -> MemoryNeed:
    """The need; what surely does not fit is refused.

    Raises:
        InfeasibleError: the need, reduced by the error of predictions, is more than there is; says what would fit.
    """
    needed = need(settings, num_classes, train_images, processes, device, TYPICAL)
    if needed.available is None or DOUBTFUL * needed.total <= needed.available:
        return needed  # so surely that this machine need not be measured for it
    needed = need(settings, num_classes, train_images, processes, device)
    if needed.available is None or needed.total / (1 + ERROR) <= needed.available:
        return needed
    most = largest_batch(settings, num_classes, train_images, processes, device)
    remedy = f"batch_size at most {most}" if most else "no batch_size fits"
    raise InfeasibleError(
        f"needs about {needed.total / GIB:.1f} GiB, {needed.available / GIB:.1f} GiB are there: {remedy}",
        {"peak_memory_fraction": needed.total / needed.available},
    )


def largest_batch(
    settings: Settings,
    num_classes: int,
    train_images: int,
    processes: int,
    device: torch.device,
    available_bytes: int | None = None,
) -> int:
    """The largest `batch_size` whose prediction is within what there is; 0: not even one picture per process.

    Raises:
        ValueError: what there is is not known, and not given.
    """

    def total(batch: int) -> int:
        return need(replace(settings, batch_size=batch), num_classes, train_images, processes, device).total

    limit = available(device) if available_bytes is None else available_bytes
    if limit is None:
        raise ValueError("what memory there is is not known")
    return largest(total, limit, step=processes)


# --- what is counted --------------------------------------------------------------------------------------------------


def _counted(settings: Settings, num_classes: int, batch: int, device: torch.device) -> Liveness:
    return _of_plain(plain(settings, device), num_classes, batch, device)


@cache  # a pass takes some tenths of a second
def _of_plain(plain: Settings, num_classes: int, batch: int, device: torch.device) -> Liveness:
    model = shapes_of_network(plain, num_classes)
    kept_below = HEAP_BLOCKS_BELOW if device.type == "cpu" else 0
    return liveness(model, plain, batch, EVALUATION_BATCH, device, kept_below)


def _retained(counted: Liveness) -> int:
    """What a heap that returns nothing takes more than its blocks ever did at a time."""
    return max(0, int(RETAINED * counted.retained) - counted.training_and_evaluation)


def plain(settings: Settings, device: torch.device) -> Settings:
    """The same tensors without what needs numbers: gradients scaled, kernels timed, steps compiled or captured."""
    precision = precision_of(settings.precision, device.type)
    precision = "bf16" if precision == "fp16" else precision
    kernel = settings.conv_kernel
    if kernel == "auto":
        kernel = "gemm" if device.type == "cpu" else "library"  # what is mostly chosen; gemm takes a fifth more
    momentum = 0.9 if settings.momentum else 0.0  # without it SGD keeps nothing
    plain = replace(settings, precision=precision, conv_kernel=kernel, momentum=momentum)
    return replace(plain, compile=False, cuda_graphs=False, **WITHOUT_EFFECT)


def _loading(
    settings: Settings, train_images: int, beyond: Calibration, device: torch.device, batch: int
) -> tuple[int, int]:
    """Bytes of batches and loader processes, and of all the pictures, where they count."""
    batches = BATCH_BYTES_PER_IMAGE * batch
    if device.type == "cuda":
        return batches, PICTURE_BYTES * train_images if settings.loader == "device" else 0
    if settings.loader == "workers":
        ahead = 4 * PICTURE_BYTES * batch * PREFETCHED_BATCHES
        return batches + settings.num_workers * (ahead + beyond.loader_process), 0
    return batches, PICTURE_BYTES * train_images  # mapped, and soon all of it read


# --- what is measured -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Calibration:
    """Bytes that this machine takes beyond the counted."""

    process: Mapping[str, int]  # by precision: interpreter and libraries; on CUDA what they keep on the device
    loader_process: int  # each has for itself


MIB = 2**20
TYPICAL = Calibration(process={"fp32": 800 * MIB, "bf16": 750 * MIB}, loader_process=100 * MIB)
# Width and batch. What is beyond the counted hardly grows with it on a CPU: 0.70 to 0.86 GiB in 14 trials that counted
# 0.1 to 1.8 GiB. On CUDA it holds cuDNN's workspaces, which do.
PROBED = {"conv_kernel": "library", "allocator": "system"}  # nothing is timed, and there are few holes
PROBES = {"cpu": (0.25, 256), "cuda": (1.0, 512)}


@cache
def calibration(device: torch.device) -> Calibration:
    """That kept for this machine; else by two tiny trainings in processes of their own (15 s)."""
    try:
        return Calibration(**kept("memory", machine(device, 0), lambda old: _measured(device)))
    except (OSError, subprocess.CalledProcessError) as error:
        log.warning("memory is predicted without measuring this machine: %s", error)
        return TYPICAL


def _measured(device: torch.device) -> Figures:
    code = "import sys; from trainables.foresight import memory; memory.probe(*sys.argv[1:])"
    process: dict[str, int] = {}
    for precision in [p for p in precisions(device.type) if p != "fp16"]:
        command = [sys.executable, "-c", code, device.type, precision]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        counted, measured, loader_process = json.loads(done.stdout.splitlines()[-1])
        process[precision] = measured - counted
    return {"process": {"bf16": process["fp32"], **process}, "loader_process": loader_process}


def probe(device_type: str, precision: str) -> None:
    """Train a little in this fresh process; print bytes: counted, measured, and what a loader process has."""
    torch.backends.cudnn.benchmark = True
    print(json.dumps(_probed(*PROBES[device_type], precision, torch.device(device_type))))


def _probed(width: float, batch: int, precision: str, device: torch.device) -> tuple[int, int, int]:
    from trainables import vgg19_cifar10
    from trainables.settings import checked

    config = {"width": width, "batch_size": batch, "precision": precision, **PROBED}
    settings = Settings(**checked(config, vgg19_cifar10.PARAMETERS or {}))
    counted = _counted(settings, 10, batch, device).training_and_evaluation
    footprint = Footprint([device])
    with allocating(settings.allocator), contextlib.closing(_black_pictures(4 * batch, batch)) as batches:
        step = build(settings, 10, device)
        for images, labels in itertools.islice(batches.epoch(1, Timeline(CPU)), 2):
            step(images.to(device), labels.to(device), Timeline(device))
        step.model.eval()
        with torch.no_grad(), autocast(settings, device):
            step.model(arranged(torch.zeros(EVALUATION_BATCH, 3, 32, 32, device=device), settings))
        loader_process = sum(private_bytes(child.pid) for child in multiprocessing.active_children())
        peak = footprint.peak_gib()
    if peak is None:
        raise OSError("the system does not tell what memory a process has")
    return counted, int(peak * GIB) - (loader_process if device == CPU else 0), loader_process


def _black_pictures(count: int, batch: int) -> Batches:
    """From a loader process."""
    pictures = cifar10.Pictures(np.zeros((count, 32, 32, 3), np.uint8), np.zeros(count, np.int64))
    return training_batches(
        "workers", pictures, Plan(np.arange(count), batch, seed=0), CPU, num_workers=1, pin_memory=False
    )
