"""Construction of a configuration's device, network and training step."""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from trainables.contract import InfeasibleError, Worker
from trainables.machine.processor import precision_of
from trainables.network.autotune import choose_kernels
from trainables.network.normalization import synchronised
from trainables.network.vgg import vgg19
from trainables.parallel import ranks
from trainables.parallel.layouts import pictures_at_a_time
from trainables.settings import Settings
from trainables.step import DTYPES, FORMATS, Step
from trainables.strategies import get_strategy


def build(settings: Settings, num_classes: int, device: torch.device) -> Step:
    """Build the strategy's step around a new network, whose weights depend on the seed alone."""
    torch.manual_seed(settings.seed)
    processes = dist.get_world_size() if dist.is_initialized() else 1
    model = network(settings, num_classes, device, processes)
    ranks.meet(processes)
    if settings.batch_norm == "synchronised":
        model = synchronised(model, device)
    return get_strategy(settings.strategy).build(model, settings, device)


def network(settings: Settings, num_classes: int, device: torch.device, processes: int = 1) -> nn.Module:
    """Build a network with new weights and the convolution kernels that the settings select."""
    memory_format = FORMATS[settings.memory_format]
    model = vgg19(num_classes, width=settings.width, head=settings.head).to(device)
    model.to(memory_format=memory_format)
    dtype = DTYPES.get(precision_of(settings.precision, device.type), torch.float32)
    batch_size = pictures_at_a_time(settings, processes)
    choose_kernels(model, settings.conv_kernel, batch_size=batch_size, dtype=dtype, memory_format=memory_format)
    return model


def shapes_of_network(settings: Settings, num_classes: int) -> nn.Module:
    """Build the network on the meta device, without weights."""
    with torch.device("meta") as meta:
        return network(settings, num_classes, meta)


def network_of(settings: Settings, num_classes: int) -> dict[str, Any]:
    """Return the settings that a checkpoint's state depends on."""
    relevant = {name: getattr(settings, name) for name in ("width", "head", "optimizer")}
    return {**relevant, "num_classes": num_classes}


def device_of(worker: Worker) -> torch.device:
    """Return this process's device: the GPU of its local rank if the trial has GPUs.

    Raises:
        InfeasibleError: the trial has GPUs, but PyTorch finds no CUDA device.
    """
    if worker.resources.gpus == 0:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise InfeasibleError("the trial was given a GPU, but PyTorch finds no CUDA device")
    # With Ray Train each process sees all GPUs of its group on the node, otherwise only its own, number 0.
    place = int(os.environ.get("LOCAL_RANK", worker.rank)) % torch.cuda.device_count()
    torch.cuda.set_device(place)
    torch.backends.cudnn.benchmark = True  # all batches have one shape
    return torch.device("cuda", place)
