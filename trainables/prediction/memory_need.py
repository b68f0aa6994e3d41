"""Memory that a configuration needs, by part, predicted before it runs; the largest batch that fits.

Tensors are counted on fake tensors (see `tensor_memory`). The overhead that cannot be counted (the process with its
libraries, their memory within an operator, fragmentation of the heap) is measured once per machine by two tiny
trainings, and stored. `benchmarks/memory.py` compares predictions with measured peaks.

On a GPU, the prediction is what PyTorch's allocator reserves (`peak_reserved_gib`). The CUDA context lies outside of
it. The overhead there is cuDNN's: its workspaces depend on the kernels that it selects and cannot be counted. An
allowance stands for them, or that measurement where memory is short.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import logging
import math
import multiprocessing
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import numpy as np
import torch

from trainables.build import build, shapes_of_network
from trainables.contract import Data, InfeasibleError, Layout, MemoryNeed
from trainables.machine.allocator import allocating
from trainables.machine.measurement_cache import Figures, cached_measurement, machine_fingerprint
from trainables.machine.peak_memory import GIB, PeakMemory, available, private_bytes
from trainables.machine.processor import precision_of, precisions
from trainables.parallel.layouts import samples_per_process
from trainables.plan import Plan, share_of
from trainables.prediction.caching_allocator import reserved_for
from trainables.prediction.countable import Told, counted_or_none
from trainables.prediction.largest import largest
from trainables.prediction.tensor_memory import TensorMemory, tensor_memory
from trainables.sample_shape import SampleShape
from trainables.samples import picture_source
from trainables.samples.loaders import EVALUATION_BATCH, training_batches
from trainables.samples.worker_batches import PREFETCHED_BATCHES
from trainables.settings import Precision, Settings
from trainables.stages import Timeline
from trainables.step import arranged, autocast
from trainables.strategy_table import STRATEGIES, MemoryShare, captures
from trainables.vgg19_settings import Vgg19Settings, loader_of
from trainables.workload import workload_of
from trainables.workloads import vgg19

# glibc keeps freed blocks smaller than its largest mmap threshold in the process, where larger ones find no room.
HEAP_BLOCKS_BELOW = 32 * 2**20
RETAINED = 1.12  # size of a heap over the blocks retained by size, from 7 configurations (results/LOG.md)
ERROR = 0.15  # of a prediction
CERTAIN_FACTOR = 2  # a need of less than 1/2 of the memory certainly fits; the machine need not be measured

# Settings that change no tensor's size: one count serves all of their values. The batch is passed separately, as that
# of one process, and `memory_shares` divides the tensors among processes.
WITHOUT_EFFECT = (
    *("learning_rate_schedule", "warmup_fraction", "max_gradient_norm"),
    *("batch_size", "learning_rate", "seed", "threads", "num_workers", "pin_memory", "trace_steps"),
    *("flush_denormals", "allocator", "strategy", "world_size", "placement", "server", "batch_norm"),
    *("num_microbatches", "schedule", "compile"),
)
DEFAULTS = {name: getattr(Settings(), name) for name in WITHOUT_EFFECT}

CPU = torch.device("cpu")
MIB = 2**20
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Calibration:
    """Overhead in bytes beyond counted tensors; measured once per machine."""

    process: Mapping[str, int]  # by precision: interpreter and libraries; on CUDA workspaces of libraries
    loader_process: int  # private memory of each


CUDNN_WORKSPACE = 64 * MIB  # a guess
TYPICAL = {
    "cpu": Calibration(process={"fp32": 800 * MIB, "bf16": 750 * MIB}, loader_process=30 * MIB),
    "cuda": Calibration(process={"fp32": CUDNN_WORKSPACE, "bf16": CUDNN_WORKSPACE}, loader_process=0),
}
# Width and batch. On a CPU the overhead hardly grows with them: 0.70 to 0.86 GiB in 14 trials with 0.1 to 1.8 GiB of
# counted tensors. On CUDA it includes cuDNN's workspaces, which grow.
PROBES = {"cpu": (0.25, 256), "cuda": (1.0, 512)}
CALIBRATED_LOADERS = 2  # of one, pages that the training process replaces would count as private; two share them
COPIED_BATCHES = 2  # one in transfer, one that is trained on


@dataclass(frozen=True)
class Job:
    """Quantities that determine a training's memory besides its settings."""

    shape: SampleShape
    train_samples: int
    processes: int
    device: torch.device
    kept_samples: int | None = None  # that stay in memory if the loader keeps any; None: those trained on


def job_of(settings: Settings, data: Data, layout: Layout) -> Job:
    """Return the job of a trial on located `data`."""
    workload, device = workload_of(settings), torch.device("cuda") if layout.gpus_per_process else CPU
    shape, count = workload.sample_shape(settings, data), workload.training_count(data)
    return Job(shape, count, layout.processes, device, workload.kept_count(data, device.type))


def memory_need(
    settings: Settings, job: Job, calibration: Calibration | None = None, told: Told = log.info
) -> MemoryNeed | None:
    """Predict the memory reserved on the fullest GPU, or on a CPU that of all processes and loaders.

    `calibration`: that of this machine, unless given. None: the network cannot be counted; `told` gets the reason.
    """
    return _memory_need(resolved(settings, job), job, calibration, told)


def resolved(settings: Settings, job: Job) -> Settings:
    """Return settings with `loader` and `cuda_graphs` resolved: samples on the GPU and a graph if they fit there.

    `cuda_graphs` remains `auto` if the step is to be captured, because whether it can be is seen then only.
    """
    *preferred, last = _resolutions(settings, job.device.type)
    return next((each for each in preferred if _fits(each, job)), last)


def _resolutions(settings: Settings, device_type: str) -> list[Settings]:
    """Return what `auto` may stand for, the fastest first; the last one takes the least memory."""
    found: list[Settings] = [settings]
    if isinstance(settings, Vgg19Settings) and settings.loader == "auto":
        on_gpu = [replace(settings, loader="device")] * (loader_of("auto", device_type) == "device")
        found = [*on_gpu, replace(settings, loader="memory")]
    if settings.cuda_graphs == "auto":
        graphs: list[Literal["auto", False]] = ["auto", False] if captures(settings, device_type) else [False]
        found = [replace(each, cuda_graphs=graph) for each in found for graph in graphs]
    return found


def _fits(settings: Settings, job: Job) -> bool:
    need = _memory_need(settings, job, TYPICAL[job.device.type])
    return need is None or need.fits


def _memory_need(
    settings: Settings, job: Job, calibration: Calibration | None, told: Told = log.info
) -> MemoryNeed | None:
    device = job.device
    batch = samples_per_process(settings, job.processes)
    row = STRATEGIES[settings.strategy]
    bucket_bytes = row.bucket_bytes if device.type == "cuda" else 0
    counted = counted_or_none(
        lambda: _counted(plain(settings, device), job.shape, batch, device, bucket_bytes), settings, told
    )
    if counted is None:
        return None
    calibration = calibration or machine_calibration(device)
    # memory of a heap that returns nothing, beyond the peak of its blocks
    retained = max(0, int(RETAINED * counted.retained) - counted.training_and_evaluation)
    if settings.allocator != "retain" or device.type != "cpu":
        retained = 0
    kept_samples = job.train_samples if job.kept_samples is None else job.kept_samples
    kept = workload_of(settings).kept_bytes(settings, kept_samples, device.type)
    precision = "fp32" if precision_of(settings.precision, device.type) == "fp32" else "bf16"
    process = "process" if device.type == "cpu" else "libraries"
    others = {"samples": kept, process: calibration.process[precision]}
    shares = row.memory_shares(settings, job.processes)
    if bucket_bytes:  # they are counted as gradients, and sent in place
        shares = [replace(share, messages=0.0) for share in shares]
    loaders = (_loader(settings, job, calibration, rank) for rank in range(job.processes))
    each = [
        {**_of_process(counted, retained, share), **others, "loader": loader}
        for share, loader in zip(shares, loaders, strict=True)
    ]
    if device.type != "cpu":
        each = [max(each, key=lambda parts: sum(parts.values()))]  # the fullest GPU
    parts = {name: sum(of_process[name] for of_process in each) for name in each[0]}
    return MemoryNeed({name: size for name, size in parts.items() if size}, available(device))


def _of_process(counted: TensorMemory, retained: int, share: MemoryShare) -> dict[str, int]:
    """Memory of one process, from the count of a single one. Evaluation reuses the memory of gradients in transit."""
    communication = int(share.messages * counted.gradients)
    evaluation = counted.training_and_evaluation - counted.training
    # negative where the peak comes before all gradients are there or after some activations are freed
    workspace = counted.training - counted.parameters - counted.gradients - counted.optimizer - counted.activations
    return {
        "parameters": int(share.parameters * counted.parameters),
        "gradients": int(share.gradients * counted.gradients),
        "optimizer": int(share.optimizer * counted.optimizer),
        "activations": int(share.activations * (counted.activations + min(0, workspace))),
        "workspace": int(share.activations * max(0, workspace)),
        "retained": int(share.activations * retained),
        "graph": counted.graph,
        "cached": int(share.activations * counted.cached),
        "communication": communication,
        "evaluation": max(0, evaluation - communication),
    }


def _loader(settings: Settings, job: Job, calibration: Calibration, rank: int) -> int:
    """Bytes of a rank's batches in the making, and on a CPU of loader processes with the batches that they hold ready.

    On a GPU: of the batches that are copied there on a stream of their own. None of a rank that reads no samples.
    """
    share = share_of(settings.strategy, rank, job.processes)
    if share.number is None:
        return 0
    batch = math.ceil(settings.batch_size / share.of)
    loaded = workload_of(settings).loaded_bytes(settings, job.shape, batch, job.device.type)
    if job.device.type == "cuda":
        return reserved_for([loaded] * COPIED_BATCHES)
    ahead = job.shape.bytes_per_sample * batch * PREFETCHED_BATCHES
    return loaded + settings.loader_processes * (ahead + calibration.loader_process)


def check(settings: Settings, job: Job) -> MemoryNeed | None:
    """Return the need, None if it is not known, or refuse a configuration that certainly does not fit.

    Raises:
        InfeasibleError: the need, less the error of predictions, exceeds the memory; says what would fit.
    """
    needed = memory_need(settings, job, TYPICAL[job.device.type])
    if needed is None or CERTAIN_FACTOR * needed.total <= needed.available:
        return needed
    needed = memory_need(settings, job)
    if needed is None:
        return None
    kept_back = needed.parts.get("cached", 0)  # released before an allocation fails
    if (needed.total - kept_back) / (1 + ERROR) <= needed.available:
        return needed
    remedy = _remedy(settings, job)
    raise InfeasibleError(
        f"needs about {needed.total / GIB:.1f} GiB, {needed.available / GIB:.1f} GiB are there: {remedy}",
        {"peak_memory_fraction": needed.total / needed.available},
    )


def _remedy(settings: Settings, job: Job) -> str:
    """Return which batch fits, or in how many parts this one does."""
    most = largest_batch(settings, job)
    if not most:
        return "no batch_size fits"
    fits, fewest = f"batch_size at most {most}", math.ceil(settings.batch_size / most) * settings.accumulation_steps
    if STRATEGIES[settings.strategy].micro_batches or settings.cuda_graphs is True:
        return fits
    for parts in (fewest, 2 * fewest, 4 * fewest):  # the whole batch takes memory, too
        if parts > samples_per_process(settings, job.processes):
            break
        need = memory_need(replace(settings, accumulation_steps=parts), job)
        if need and need.fits:
            return f"{fits}, or accumulation_steps {parts}"
    return fits


def largest_batch(settings: Settings, job: Job, available_bytes: int | None = None) -> int | None:
    """Return the largest `batch_size` up to the number of training samples whose prediction fits.

    0: not even one sample in each part of a process's. None: the network cannot be counted.
    """
    settings = _resolutions(settings, job.device.type)[-1]
    limit = available(job.device) if available_bytes is None else available_bytes

    def total(batch_size: int) -> float:
        need = memory_need(replace(settings, batch_size=batch_size), job)
        return math.inf if need is None else need.total

    parts = job.processes * settings.accumulation_steps
    fewest = settings.num_microbatches if STRATEGIES[settings.strategy].micro_batches else parts
    if math.isinf(total(fewest)):
        return None
    most = job.train_samples // fewest * fewest
    return most if not most or total(most) <= limit else largest(total, limit, step=fewest)


@cache  # a count takes some tenths of a second
def _counted(
    plain: Settings, shape: SampleShape, batch: int, device: torch.device, bucket_bytes: int = 0
) -> TensorMemory:
    model = shapes_of_network(plain, shape)
    kept_below = HEAP_BLOCKS_BELOW if device.type == "cpu" else 0
    evaluation_batch = workload_of(plain).evaluation_batch_size(plain, batch)
    return tensor_memory(model, plain, shape, batch, evaluation_batch, device, kept_below, bucket_bytes)


def plain(settings: Settings, device: torch.device) -> Settings:
    """Return settings with the same tensors, but without gradient scaling, kernel timing and compilation."""
    settings = replace(settings, cuda_graphs=captures(settings, device.type))
    precision = precision_of(settings.precision, device.type)
    precision = "bf16" if precision == "fp16" else precision
    momentum = 0.9 if settings.momentum else 0.0  # without momentum SGD has no state
    # weight decay would count a few more bytes
    plain = replace(settings, precision=precision, momentum=momentum, weight_decay=0.0, **DEFAULTS)
    return workload_of(settings).plain(plain, device.type)


@cache
def machine_calibration(device: torch.device) -> Calibration:
    """Return the stored calibration, or measure it by two tiny trainings in their own processes (15 s)."""
    try:
        fingerprint = machine_fingerprint(device, 0)
        if device.type == "cuda":
            fingerprint["quantity"] = "reserved"  # before, it was the memory of tensors
        else:
            fingerprint["loaders"] = CALIBRATED_LOADERS  # before, it was one, which had four times the private memory
        return Calibration(**cached_measurement("memory", fingerprint, lambda old: _measured(device)))
    except (OSError, subprocess.CalledProcessError) as error:
        log.warning("memory is predicted without measuring this machine: %s", error)
        return TYPICAL[device.type]


def _measured(device: torch.device) -> Figures:
    code = f"import sys; from {__name__} import probe; probe(*sys.argv[1:])"
    process: dict[str, int] = {}
    for precision in [p for p in precisions(device.type) if p != "fp16"]:
        command = [sys.executable, "-c", code, device.type, precision]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        counted, measured, loader_process = json.loads(done.stdout.splitlines()[-1])
        process[precision] = max(0, measured - counted)
    return {"process": {"bf16": process["fp32"], **process}, "loader_process": loader_process}


def probe(device_type: str, precision: Precision) -> None:
    """Train briefly in this new process; print bytes: counted, measured, and private to a loader process."""
    print(json.dumps(_probed(*PROBES[device_type], precision, torch.device(device_type))))


def _probed(width: float, batch: int, precision: Precision, device: torch.device) -> tuple[int, int, int]:
    settings = Vgg19Settings(
        width=width,
        batch_size=batch,
        precision=precision,
        conv_kernel="library",  # not timed
        allocator="system",  # little fragmentation
        cuda_graphs=False,
    )
    shape = vgg19.shape_for(10)
    memory = _counted(plain(settings, device), shape, batch, device)
    counted = memory.training_and_evaluation + memory.cached
    peak_memory = PeakMemory([device])
    pictures = picture_source.Pictures(np.zeros((4 * batch, 32, 32, 3), np.uint8), np.zeros(4 * batch, np.int64))
    plan = Plan(np.arange(4 * batch), batch, seed=0)
    batches = training_batches("workers", pictures, plan, CPU, num_workers=CALIBRATED_LOADERS, pin_memory=False)
    gc.freeze()  # as in a trial: a collection would write to all objects that loaders share with this process
    with allocating(settings.allocator), contextlib.closing(batches):
        step = build(settings, shape, device)
        for images, labels in itertools.islice(batches.epoch(1, Timeline(CPU)), 2):
            step(images.to(device), labels.to(device), Timeline(device))
        step.model.eval()
        with torch.no_grad(), autocast(settings, device):
            step.model(arranged(shape.example(EVALUATION_BATCH, device)[0], settings))
        loaders = sum(private_bytes(child.pid) for child in multiprocessing.active_children())
        reserved = peak_memory.peak_reserved_gib()
        peak = peak_memory.peak_gib() if reserved is None else reserved
    return counted, int(peak * GIB) - (loaders if device == CPU else 0), loaders // CALIBRATED_LOADERS
