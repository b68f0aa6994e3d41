"""Construction of a configuration's device, network and training step."""

from __future__ import annotations

import itertools
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from trainables.contract import InfeasibleError, Worker
from trainables.network.normalization import synchronised
from trainables.parallel import ranks
from trainables.parallel.layouts import samples_at_a_time
from trainables.sample_shape import SampleShape
from trainables.seeding import seed_process
from trainables.settings import Settings
from trainables.step import FORMATS, Step
from trainables.strategies import get_strategy
from trainables.workload import workload_of


def build(settings: Settings, shape: SampleShape, device: torch.device) -> Step:
    """Build the strategy's step around a new network, whose weights depend on the seed alone."""
    seed_process(settings.seed)
    processes = dist.get_world_size() if dist.is_initialized() else 1
    model = network(settings, shape, device, processes)
    ranks.meet(processes)  # one may be late, such as by timing its kernels
    if processes > 1:  # a file may draw weights elsewhere
        for tensor in itertools.chain(model.parameters(), model.buffers()):
            dist.broadcast(tensor.detach(), src=0)
    if settings.batch_norm == "synchronised":
        model = synchronised(model)
    return get_strategy(settings.strategy).build(model, settings, shape, device)


def network(settings: Settings, shape: SampleShape, device: torch.device, processes: int = 1) -> nn.Module:
    """Build the workload's network with new weights and the kernels that the settings select."""
    workload = workload_of(settings)
    if device.type == "cuda":
        torch.backends.cudnn.benchmark = True  # all batches have one shape
    model = workload.network(settings, shape).to(device)
    for tensor in itertools.chain(model.parameters(), model.buffers()):
        # fused optimizers and messages between processes take memory as it lies; nn.Module.to would convert five axes
        # to channels_last, too, which is another format for them
        is_dense = tensor.ndim == 5 and tensor.is_contiguous(memory_format=torch.channels_last_3d)
        if tensor.layout == torch.strided and not is_dense:
            wanted = FORMATS[settings.memory_format] if tensor.ndim == 4 else torch.contiguous_format
            tensor.data = tensor.data.contiguous(memory_format=wanted)
    workload.tune(model, settings, samples_at_a_time(settings, processes))
    return model


def shapes_of_network(settings: Settings, shape: SampleShape) -> nn.Module:
    """Build the network on the meta device, without weights."""
    with torch.device("meta") as meta:
        return network(settings, shape, meta)


def network_of(settings: Settings, shape: SampleShape) -> dict[str, Any]:
    """Return what a checkpoint's state depends on."""
    source = {"source": settings.source} if settings.source else {}
    own = {**settings.that_shape_the_network(), **source}
    return {**own, "optimizer": settings.optimizer, "num_classes": shape.num_classes}


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
    place = ranks.local_rank(worker.rank) % torch.cuda.device_count()
    torch.cuda.set_device(place)
    return torch.device("cuda", place)
