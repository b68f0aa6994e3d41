"""The processes and devices that each strategy needs. Known without torch, so that a space file is checked at once."""

from __future__ import annotations

import math

from trainables.contract import InfeasibleError, Layout, Resources, Scalar
from trainables.settings import Settings

# The fewest processes of each strategy: one that shares work with others also runs alone, to compare itself with.
FEWEST_PROCESSES = {
    "single": 1,
    "data_parallel": 1,
    "ddp": 1,
    "fsdp": 1,
    "ring_allreduce": 1,
    "parameter_server": 2,
    "pipeline": 2,
}
IN_ONE_PROCESS = ("single", "data_parallel")
# What a strategy does not have.
_LACKS: dict[str, dict[str, Scalar]] = {
    "data_parallel": {"cuda_graphs": True, "compile": True, "batch_norm": "synchronised"},
    "ddp": {"cuda_graphs": True},
    "fsdp": {"cuda_graphs": True, "compile": True, "precision": "fp16"},
    "ring_allreduce": {"cuda_graphs": True},
    "parameter_server": {"cuda_graphs": True, "precision": "fp16", "batch_norm": "synchronised"},
    "pipeline": {"cuda_graphs": True, "compile": True, "precision": "fp16", "batch_norm": "synchronised"},
}


def layout_of(settings: Settings, resources: Resources) -> Layout:
    """One process with everything, or the strategy's processes with equal shares.

    Raises:
        InfeasibleError: there are too few devices or cores, or a setting that the strategy does not have.
    """
    strategy = settings.strategy
    for name, value in _LACKS.get(strategy, {}).items():
        if getattr(settings, name) == value:
            raise InfeasibleError(f"{name} {value}: not with strategy {strategy}")
    if strategy == "data_parallel" and not resources.gpus:
        raise InfeasibleError("strategy data_parallel: needs a CUDA device")
    processes = processes_of(settings, resources)
    if strategy == "pipeline":
        check_microbatches(settings, processes)
    cpus = cores_of(settings, resources)
    if settings.threads is not None and settings.threads > cpus:
        raise InfeasibleError(f"threads {settings.threads}: each of {processes} processes has {cpus}")
    gpus = resources.node.gpus if strategy == "data_parallel" else min(1, resources.gpus)
    return Layout(processes, cpus, gpus, placement=settings.placement if processes > 1 else "pack")


def cores_of(settings: Settings, resources: Resources) -> int:
    """Of each process: its share of a node that has as many processes as any.

    Raises:
        InfeasibleError: as `processes_of`.
    """
    processes = processes_of(settings, resources)
    room = max(1, resources.node.gpus or resources.node.cpus)  # for processes, on one node
    nodes = processes if settings.placement == "spread" else math.ceil(processes / room)
    return max(1, resources.node.cpus // math.ceil(processes / min(nodes, resources.nodes)))


def processes_of(settings: Settings, resources: Resources) -> int:
    """`world_size`: by default all GPUs; on a CPU two, where more only take each other's cores.

    Raises:
        InfeasibleError: the strategy has no `world_size`, or needs a larger one.
    """
    strategy, world_size = settings.strategy, settings.world_size
    if strategy in IN_ONE_PROCESS:
        if world_size is not None:
            raise InfeasibleError(f"world_size {world_size}: strategy {strategy} is one process")
        return 1
    fewest = FEWEST_PROCESSES[strategy]
    if world_size is not None and world_size < fewest:
        raise InfeasibleError(f"world_size {world_size}: strategy {strategy} needs at least {fewest}")
    return world_size or max(fewest, resources.gpus or 2)


def check_microbatches(settings: Settings, processes: int) -> None:
    """All micro-batches have one size: a stage knows beforehand what it will receive.

    Raises:
        InfeasibleError: there is no such size, or too few micro-batches for the schedule.
    """
    count, batch_size = settings.num_microbatches, settings.batch_size
    if batch_size % count:
        below = batch_size // count * count
        nearest = f"{below} or {below + count}" if below else f"{count}"
        raise InfeasibleError(f"batch_size {batch_size}: not in {count} equal micro-batches; {nearest} is")
    if settings.schedule == "1f1b" and count < processes:
        raise InfeasibleError(f"num_microbatches {count}: schedule 1f1b needs one per process, {processes}")


def pictures_per_reader(settings: Settings, processes: int) -> int:
    """Of each batch, in the process that reads most of it."""
    readers = max(1, processes - 1) if settings.strategy == "parameter_server" else processes
    return math.ceil(settings.batch_size / readers)


def pictures_at_a_time(settings: Settings, processes: int) -> int:
    """That go through the network together in one process: a micro-batch, or its share of a batch."""
    if settings.strategy == "pipeline":
        return max(1, settings.batch_size // settings.num_microbatches)
    return pictures_per_reader(settings, processes)
