"""What a configuration is made of: its device, its network, its strategy's step."""

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
from trainables.step import DTYPES, FORMATS
from trainables.strategies import TrainStep, get_strategy


def build(settings: Settings, num_classes: int, device: torch.device) -> TrainStep:
    """The strategy's step around a new network, whose weights depend on the seed alone."""
    torch.manual_seed(settings.seed)
    processes = dist.get_world_size() if dist.is_initialized() else 1
    model = network(settings, num_classes, device, processes)
    ranks.meet(processes)
    if settings.batch_norm == "synchronised":
        model = synchronised(model, device)
    return get_strategy(settings.strategy).build(model, settings, device)


def network(settings: Settings, num_classes: int, device: torch.device, processes: int = 1) -> nn.Module:
    """With new weights, each convolution by the kernel that the settings ask for."""
    model = vgg19(num_classes, width=settings.width, head=settings.head)
    model.to(device)
    model.to(memory_format=FORMATS[settings.memory_format])
    choose_kernels(
        model,
        settings.conv_kernel,
        batch_size=pictures_at_a_time(settings, processes),
        dtype=DTYPES.get(precision_of(settings.precision, device.type), torch.float32),
        memory_format=FORMATS[settings.memory_format],
    )
    return model


def shapes_of_network(settings: Settings, num_classes: int) -> nn.Module:
    """The same on the meta device: without numbers."""
    meta = torch.device("meta")
    with meta:
        return network(settings, num_classes, meta)


def network_of(settings: Settings, num_classes: int) -> dict[str, Any]:
    """What a checkpoint's state fits."""
    return {
        "width": settings.width,
        "head": settings.head,
        "num_classes": num_classes,
        "optimizer": settings.optimizer,
    }


def device_of(worker: Worker) -> torch.device:
    """This process's own device: the GPU of its place on this node, if the trial has GPUs.

    Raises:
        InfeasibleError: the trial has GPUs, but there is no CUDA here.
    """
    if worker.resources.gpus == 0:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise InfeasibleError("the trial was given a GPU, but PyTorch finds no CUDA device")
    # Ray Train shows all of a group's GPUs on a node to each of its processes; others show each its own, number 0.
    place = int(os.environ.get("LOCAL_RANK", worker.rank)) % torch.cuda.device_count()
    torch.cuda.set_device(place)
    torch.backends.cudnn.benchmark = True  # all batches have one shape
    return torch.device("cuda", place)
