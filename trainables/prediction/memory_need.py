"""Memory that a configuration needs, by part, predicted before it runs; the largest batch that fits.

Tensors are counted on fake tensors (see `tensor_memory`). The overhead that cannot be counted (the process with its
libraries, their memory within an operator, fragmentation of the heap) is measured once per machine by two tiny
trainings, and stored. `benchmarks/memory.py` compares predictions with measured peaks.
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

import numpy as np
import torch

from trainables.build import build, shapes_of_network
from trainables.contract import Data, InfeasibleError, Layout, MemoryNeed
from trainables.machine.allocator import allocating
from trainables.machine.measurement_cache import Figures, cached_measurement, machine_fingerprint
from trainables.machine.peak_memory import GIB, PeakMemory, available, private_bytes
from trainables.machine.processor import precision_of, precisions
from trainables.parallel.layouts import pictures_per_reader
from trainables.prediction.largest import largest
from trainables.prediction.tensor_memory import TensorMemory, tensor_memory
from trainables.samples import cifar10
from trainables.samples.loaders import EVALUATION_BATCH, PREFETCHED_BATCHES, Plan, training_batches
from trainables.settings import Precision, Settings
from trainables.stages import Timeline
from trainables.step import arranged, autocast
from trainables.strategy_table import STRATEGIES, MemoryShare

# glibc keeps freed blocks smaller than its largest mmap threshold in the process, where larger ones find no room.
HEAP_BLOCKS_BELOW = 32 * 2**20
IMAGE_BYTES = 32 * 32 * 3
BATCH_BYTES_PER_IMAGE = 16 * IMAGE_BYTES  # gathered, padded, cropped and flipped bytes, floats, a copy in its format
RETAINED = 1.12  # size of a heap over the blocks retained by size, from 7 configurations (results/LOG.md)
ERROR = 0.15  # of a prediction
CERTAIN_FACTOR = 2  # a need of less than 1/2 of the memory certainly fits; the machine need not be measured

# Settings that change no tensor's size: one count serves all of their values. The batch is passed separately, as that
# of one process, and `memory_shares` divides the tensors among processes.
WITHOUT_EFFECT = (
    *("batch_size", "learning_rate", "seed", "threads", "loader", "num_workers", "pin_memory", "trace_steps"),
    *("flush_denormals", "allocator", "strategy", "world_size", "placement", "server", "batch_norm"),
    *("num_microbatches", "schedule", "compile", "cuda_graphs"),
)
DEFAULTS = {name: getattr(Settings(), name) for name in WITHOUT_EFFECT}

CPU = torch.device("cpu")
MIB = 2**20
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Calibration:
    """Overhead in bytes beyond counted tensors; measured once per machine."""

    process: Mapping[str, int]  # by precision: interpreter and libraries; on CUDA their memory on the device
    loader_process: int  # private memory of each


TYPICAL = Calibration(process={"fp32": 800 * MIB, "bf16": 750 * MIB}, loader_process=100 * MIB)
# Width and batch. On a CPU the overhead hardly grows with them: 0.70 to 0.86 GiB in 14 trials with 0.1 to 1.8 GiB of
# counted tensors. On CUDA it includes cuDNN's workspaces, which grow.
PROBES = {"cpu": (0.25, 256), "cuda": (1.0, 512)}


@dataclass(frozen=True)
class Job:
    """Quantities that determine a training's memory besides its settings."""

    num_classes: int
    train_images: int
    processes: int
    device: torch.device


def job_of(data: Data, layout: Layout) -> Job:
    """Return the job of a trial on located `data`."""
    train_images, num_classes = cifar10.training_count(data)
    return Job(num_classes, train_images, layout.processes, torch.device("cuda") if layout.gpus_per_process else CPU)


def memory_need(settings: Settings, job: Job, calibration: Calibration | None = None) -> MemoryNeed:
    """Predict the memory of each GPU, or on a CPU of all processes and loaders, as `PeakMemory` measures it.

    `calibration` is that of this machine, unless given.
    """
    device = job.device
    calibration = calibration or machine_calibration(device)
    batch = pictures_per_reader(settings, job.processes)
    counted = _counted(plain(settings, device), job.num_classes, batch, device)
    # memory of a heap that returns nothing, beyond the peak of its blocks
    retained = max(0, int(RETAINED * counted.retained) - counted.training_and_evaluation)
    if settings.allocator != "retain" or device.type != "cpu":
        retained = 0
    loader, pictures = _loader_and_pictures(settings, job, calibration, batch)
    precision = "fp32" if precision_of(settings.precision, device.type) == "fp32" else "bf16"
    others = {"pictures": pictures, "loader": loader, "process": calibration.process[precision]}
    shares = STRATEGIES[settings.strategy].memory_shares(settings, job.processes)
    each = [{**_of_process(counted, retained, share), **others} for share in shares]
    if device.type != "cpu":
        each = [max(each, key=lambda parts: sum(parts.values()))]  # the fullest GPU
    parts = {name: sum(of_process[name] for of_process in each) for name in each[0]}
    return MemoryNeed({name: size for name, size in parts.items() if size}, available(device))


def _of_process(counted: TensorMemory, retained: int, share: MemoryShare) -> dict[str, int]:
    """Memory of one process, from the count of a single one. Evaluation reuses the memory of gradients in transit."""
    communication = int(share.messages * counted.gradients)
    evaluation = counted.training_and_evaluation - counted.training
    known = counted.parameters + counted.gradients + counted.optimizer + counted.activations
    return {
        "parameters": int(share.parameters * counted.parameters),
        "gradients": int(share.gradients * counted.gradients),
        "optimizer": int(share.optimizer * counted.optimizer),
        "activations": int(share.activations * counted.activations),
        "workspace": int(share.activations * (counted.training - known)),
        "retained": int(share.activations * retained),
        "communication": communication,
        "evaluation": max(0, evaluation - communication),
    }


def _loader_and_pictures(settings: Settings, job: Job, calibration: Calibration, batch: int) -> tuple[int, int]:
    """Bytes of batches with loader processes, and of all images where they are in memory."""
    batches, images = BATCH_BYTES_PER_IMAGE * batch, IMAGE_BYTES * job.train_images
    if job.device.type == "cuda":
        return batches, images if settings.loader == "device" else 0
    if settings.loader == "workers":
        ahead = 4 * IMAGE_BYTES * batch * PREFETCHED_BATCHES
        return batches + settings.num_workers * (ahead + calibration.loader_process), 0
    return batches, images  # mapped, and soon read completely


def check(settings: Settings, job: Job) -> MemoryNeed:
    """Return the need, or refuse a configuration that certainly does not fit.

    Raises:
        InfeasibleError: the need, less the error of predictions, exceeds the memory; says what would fit.
    """
    needed = memory_need(settings, job, TYPICAL)
    if needed.available is None or CERTAIN_FACTOR * needed.total <= needed.available:
        return needed
    needed = memory_need(settings, job)
    if needed.available is None or needed.total / (1 + ERROR) <= needed.available:
        return needed
    most = largest_batch(settings, job)
    remedy = f"batch_size at most {most}" if most else "no batch_size fits"
    raise InfeasibleError(
        f"needs about {needed.total / GIB:.1f} GiB, {needed.available / GIB:.1f} GiB are there: {remedy}",
        {"peak_memory_fraction": needed.total / needed.available},
    )


def largest_batch(settings: Settings, job: Job, available_bytes: int | None = None) -> int:
    """Return the largest `batch_size` whose prediction fits; 0: not even one image per process.

    Raises:
        ValueError: the available memory is unknown and was not given.
    """
    limit = available(job.device) if available_bytes is None else available_bytes
    if limit is None:
        raise ValueError("the available memory is not known")
    return largest(lambda n: memory_need(replace(settings, batch_size=n), job).total, limit, step=job.processes)


@cache  # a count takes some tenths of a second
def _counted(plain: Settings, num_classes: int, batch: int, device: torch.device) -> TensorMemory:
    model = shapes_of_network(plain, num_classes)
    kept_below = HEAP_BLOCKS_BELOW if device.type == "cpu" else 0
    return tensor_memory(model, plain, batch, EVALUATION_BATCH, device, kept_below)


def plain(settings: Settings, device: torch.device) -> Settings:
    """Return settings with the same tensors, but without gradient scaling, kernel timing, compilation and capture."""
    precision = precision_of(settings.precision, device.type)
    precision = "bf16" if precision == "fp16" else precision
    kernel = settings.conv_kernel
    if kernel == "auto":
        kernel = "gemm" if device.type == "cpu" else "library"  # the usual choice; gemm needs a fifth more
    momentum = 0.9 if settings.momentum else 0.0  # without momentum SGD has no state
    plain = replace(settings, precision=precision, conv_kernel=kernel, momentum=momentum, **DEFAULTS)
    return replace(plain, weight_decay=0.0, label_smoothing=0.0)  # counts a few more bytes with them


@cache
def machine_calibration(device: torch.device) -> Calibration:
    """Return the stored calibration, or measure it by two tiny trainings in their own processes (15 s)."""
    try:
        fingerprint = machine_fingerprint(device, 0)
        return Calibration(**cached_measurement("memory", fingerprint, lambda old: _measured(device)))
    except (OSError, subprocess.CalledProcessError) as error:
        log.warning("memory is predicted without measuring this machine: %s", error)
        return TYPICAL


def _measured(device: torch.device) -> Figures:
    code = f"import sys; from {__name__} import probe; probe(*sys.argv[1:])"
    process: dict[str, int] = {}
    for precision in [p for p in precisions(device.type) if p != "fp16"]:
        command = [sys.executable, "-c", code, device.type, precision]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        counted, measured, loader_process = json.loads(done.stdout.splitlines()[-1])
        process[precision] = measured - counted
    return {"process": {"bf16": process["fp32"], **process}, "loader_process": loader_process}


def probe(device_type: str, precision: Precision) -> None:
    """Train briefly in this new process; print bytes: counted, measured, and private to a loader process."""
    torch.backends.cudnn.benchmark = True
    print(json.dumps(_probed(*PROBES[device_type], precision, torch.device(device_type))))


def _probed(width: float, batch: int, precision: Precision, device: torch.device) -> tuple[int, int, int]:
    settings = Settings(
        width=width,
        batch_size=batch,
        precision=precision,
        conv_kernel="library",  # not timed
        allocator="system",  # little fragmentation
    )
    counted = _counted(plain(settings, device), 10, batch, device).training_and_evaluation
    peak_memory = PeakMemory([device])
    pictures = cifar10.Pictures(np.zeros((4 * batch, 32, 32, 3), np.uint8), np.zeros(4 * batch, np.int64))
    plan = Plan(np.arange(4 * batch), batch, seed=0)
    batches = training_batches("workers", pictures, plan, CPU, num_workers=1, pin_memory=False)
    with allocating(settings.allocator), contextlib.closing(batches):
        step = build(settings, 10, device)
        for images, labels in itertools.islice(batches.epoch(1, Timeline(CPU)), 2):
            step(images.to(device), labels.to(device), Timeline(device))
        step.model.eval()
        with torch.no_grad(), autocast(settings, device):
            step.model(arranged(torch.zeros(EVALUATION_BATCH, 3, 32, 32, device=device), settings))
        loader_process = sum(private_bytes(child.pid) for child in multiprocessing.active_children())
        peak = peak_memory.peak_gib()
    if peak is None:
        raise OSError("the peak memory of a process is not readable")
    return counted, int(peak * GIB) - (loader_process if device == CPU else 0), loader_process
