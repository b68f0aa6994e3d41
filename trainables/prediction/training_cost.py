"""Cost of training a configuration, from a few timed steps on one batch."""

from __future__ import annotations

import time
from dataclasses import replace

import torch
from torch.utils._pytree import tree_map

from trainables.build import build
from trainables.checkpoint import tensor_bytes
from trainables.contract import Cost, Data, InfeasibleError
from trainables.machine import isolation
from trainables.settings import Settings
from trainables.stages import Timeline
from trainables.strategy_table import STRATEGIES, captures
from trainables.workload import workload_of

# Size in which larger batches are timed on a CPU, where the rate depends little on it and a step takes seconds.
CPU_BATCH = 128
STEPS = 2


def training_cost(settings: Settings, data: Data) -> Cost:
    """Time one process, after one step of warm-up, or after those before the capture of a graph.

    Raises:
        InfeasibleError: out of memory, or a batch larger than the data.
    """
    workload = workload_of(settings)
    count = workload.training_count(data)
    if settings.batch_size > count:
        raise InfeasibleError(f"batch_size {settings.batch_size}: there are {count:,} training samples")
    alone = replace(settings, strategy="single", world_size=None)
    threads = settings.threads or torch.get_num_threads()
    rate, size = isolation.isolated(lambda: _timed(alone, data), threads=threads)
    units = workload.units_per_sample(data)
    return Cost(rate, samples_per_epoch=count, checkpoint_bytes=size, units_per_sample=units)


def _timed(settings: Settings, data: Data) -> tuple[float, int]:
    """Samples per second, and bytes of a checkpoint."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    batch_size = settings.batch_size
    if device.type == "cpu":
        batch_size = min(CPU_BATCH * settings.accumulation_steps, batch_size)
    workload = workload_of(settings)
    step = build(settings, workload.sample_shape(settings, data), device)
    inputs, targets = tree_map(lambda x: x.to(device), workload.example(settings, data, batch_size))
    timeline = Timeline(device)  # stays off
    for _ in range(1 + captures(settings, device.type) * STRATEGIES[settings.strategy].eager_steps):
        loss = step(inputs, targets, timeline)
    loss.item()
    started = time.perf_counter()
    for _ in range(STEPS):
        loss = step(inputs, targets, timeline)
    loss.item()  # synchronizes the device
    rate = STEPS * batch_size / (time.perf_counter() - started)
    return rate, tensor_bytes(step.state_dict())
