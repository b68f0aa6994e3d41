"""Cost of training a configuration, from a few timed steps on random images."""

from __future__ import annotations

import time
from dataclasses import replace

import torch

from trainables.build import build
from trainables.contract import Cost, Data, InfeasibleError
from trainables.machine import isolation
from trainables.samples import cifar10
from trainables.settings import Settings
from trainables.stages import Timeline

# Size in which larger batches are timed on a CPU, where the rate depends little on it and a step takes seconds.
CPU_BATCH = 128
STEPS = 2


def training_cost(settings: Settings, data: Data) -> Cost:
    """Time one process, after one step of warm-up.

    Raises:
        InfeasibleError: out of memory, or a batch larger than the data.
    """
    images_per_epoch, num_classes = cifar10.training_count(data)
    if settings.batch_size > images_per_epoch:
        raise InfeasibleError(f"batch_size {settings.batch_size}: there are {images_per_epoch:,} training pictures")
    alone = replace(settings, strategy="single", world_size=None)
    threads = settings.threads or torch.get_num_threads()
    rate, size = isolation.isolated(lambda: _timed(alone, num_classes), threads=threads)
    return Cost(images_per_second=rate, images_per_epoch=images_per_epoch, checkpoint_bytes=size)


def _timed(settings: Settings, num_classes: int) -> tuple[float, int]:
    """Images per second, and bytes of a checkpoint."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    batch_size = settings.batch_size if device.type == "cuda" else min(CPU_BATCH, settings.batch_size)
    step = build(settings, num_classes, device)
    images = torch.rand(batch_size, 3, 32, 32, device=device)
    labels = torch.randint(num_classes, (batch_size,), device=device)
    timeline = Timeline(device)  # stays off
    step(images, labels, timeline).item()
    started = time.perf_counter()
    for _ in range(STEPS):
        loss = step(images, labels, timeline)
    loss.item()  # synchronizes the device
    rate = STEPS * batch_size / (time.perf_counter() - started)
    return rate, _bytes_of_tensors(step.state_dict())


def _bytes_of_tensors(state: object) -> int:
    if isinstance(state, torch.Tensor):
        return state.numel() * state.element_size()
    return sum(map(_bytes_of_tensors, state.values())) if isinstance(state, dict) else 0
