"""Processes and devices of a configuration. Importable without torch, so that a space file is checked at once."""

from __future__ import annotations

import math

from trainables.contract import InfeasibleError, Layout, Resources
from trainables.settings import Settings
from trainables.strategy_table import STRATEGIES


def layout_of(settings: Settings, resources: Resources) -> Layout:
    """Return one process with everything, or the strategy's processes with equal shares.

    Raises:
        InfeasibleError: there are too few devices or cores, or the strategy does not support a setting.
    """
    row = STRATEGIES[settings.strategy]
    for name, value in row.unsupported.items():
        if getattr(settings, name) == value:
            raise InfeasibleError(f"{name} {value}: not with strategy {settings.strategy}")
    if row.all_gpus and not resources.gpus:
        raise InfeasibleError(f"strategy {settings.strategy}: needs a CUDA device")
    processes = processes_of(settings, resources)
    if row.micro_batches:
        check_microbatches(settings, processes)
    parts, fewest = settings.accumulation_steps, settings.batch_size // len(row.readers(processes))
    if parts > max(1, fewest):
        raise InfeasibleError(f"accumulation_steps {parts}: a process has {fewest} samples of a batch")
    cpus = cores_of(processes, settings, resources)
    gpus = resources.node.gpus if row.all_gpus else min(1, resources.gpus)
    return Layout(processes, cpus, gpus, placement=settings.placement if processes > 1 else "pack")


def cores_of(processes: int, settings: Settings, resources: Resources) -> int:
    """Return the cores of each process: an equal share of the node with the most processes.

    Raises:
        InfeasibleError: they are fewer than `threads`.
    """
    cpus = max(1, resources.node.cpus // most_on_a_node(processes, settings, resources))
    if settings.threads is not None and settings.threads > cpus:
        raise InfeasibleError(f"threads {settings.threads}: each of {processes} processes has {cpus}")
    return cpus


def most_on_a_node(processes: int, settings: Settings, resources: Resources) -> int:
    """Return the number of processes on the node that has most of them."""
    room = max(1, resources.node.gpus or resources.node.cpus)  # processes that fit on one node
    nodes = processes if settings.placement == "spread" else math.ceil(processes / room)
    return math.ceil(processes / min(nodes, resources.nodes))


def processes_of(settings: Settings, resources: Resources) -> int:
    """Return `world_size`, by default one per GPU, or two on a CPU, where more would share the same cores.

    Raises:
        InfeasibleError: the strategy has no `world_size`, or needs a larger one.
    """
    strategy, world_size = settings.strategy, settings.world_size
    row = STRATEGIES[strategy]
    if row.one_process:
        if world_size is not None:
            raise InfeasibleError(f"world_size {world_size}: strategy {strategy} is one process")
        return 1
    if world_size is not None and world_size < row.fewest_processes:
        raise InfeasibleError(f"world_size {world_size}: strategy {strategy} needs at least {row.fewest_processes}")
    return world_size or max(row.fewest_processes, resources.gpus or 2)


def check_microbatches(settings: Settings, processes: int) -> None:
    """Check that the batch can be cut as the schedule needs: a stage knows beforehand what size it will receive.

    Raises:
        InfeasibleError: the micro-batches would differ in size or are too few for the schedule, or the batch is
            also cut by `accumulation_steps`.
    """
    count, batch_size = settings.num_microbatches, settings.batch_size
    if settings.accumulation_steps > 1:
        raise InfeasibleError(f"strategy {settings.strategy}: needs num_microbatches in place of accumulation_steps")
    if batch_size % count:
        below = batch_size // count * count
        nearest = f"{below} or {below + count}" if below else f"{count}"
        raise InfeasibleError(f"batch_size {batch_size}: not in {count} equal micro-batches; {nearest} is")
    if settings.schedule == "1f1b" and count < processes:
        raise InfeasibleError(f"num_microbatches {count}: schedule 1f1b needs one per process, {processes}")


def samples_per_process(settings: Settings, processes: int) -> int:
    """Return the samples of a batch in the process that trains most of them.

    A stage of a pipeline counts as the whole network on an equal share, though a part of it passes all samples.
    """
    row = STRATEGIES[settings.strategy]
    return math.ceil(settings.batch_size / (processes if row.micro_batches else len(row.readers(processes))))


def samples_at_a_time(settings: Settings, processes: int) -> int:
    """Return the samples that pass through one process's network together: a part of its share of a batch."""
    if STRATEGIES[settings.strategy].micro_batches:
        return max(1, settings.batch_size // settings.num_microbatches)
    return math.ceil(samples_per_process(settings, processes) / settings.accumulation_steps)
