"""Which convolution kernel is the faster one for each layer on this machine: measured once, kept in the cache."""

from __future__ import annotations

import copy
import time
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from trainables.machine.kept import Figures, kept, machine
from trainables.network.convolution import Convolution, Kernel

Choice = Literal["library", "gemm", "auto"]

LARGEST_MAP = 8  # on larger ones the sums of pixels cost what the fewer products save
LARGEST_BATCH = 128  # that is timed; the ratio of the kernels changes little beyond it
REPETITIONS = 4
VERSION = 1  # of `gemm`; a new one is measured anew


def choose_kernels(
    network: nn.Module, choice: Choice, *, batch_size: int, dtype: torch.dtype, memory_format: torch.memory_format
) -> None:
    """Set the kernel of each convolution of `network`, which is on its device already.

    `batch_size` is that of a step in this process, `dtype` that of the maps. On a GPU `auto` is the library's; on a CPU
    the first configuration of its kind on a machine takes a second or two.
    """
    for layer in network.modules():
        if isinstance(layer, Convolution) and layer.size <= LARGEST_MAP and layer.in_channels > 3:
            layer.kernel = choice if choice != "auto" else _faster(layer, batch_size, dtype, memory_format)


def _faster(layer: Convolution, batch_size: int, dtype: torch.dtype, memory_format: torch.memory_format) -> Kernel:
    device = layer.weight.device
    if device.type != "cpu":
        return "library"
    shape = (min(batch_size, LARGEST_BATCH), layer.in_channels, layer.size, layer.size)
    source = {
        **machine(device, torch.get_num_threads()),
        "version": VERSION,
        "dtype": str(dtype),
        "memory_format": str(memory_format),
        "images": shape,
        "channels_out": layer.out_channels,
    }
    images = torch.full(shape, 0.5, dtype=dtype).contiguous(memory_format=memory_format)
    seconds = kept("convolution", source, lambda _: _timed(layer, images))
    return min(get_args(Kernel), key=lambda kernel: seconds[kernel])


def _timed(layer: Convolution, images: Tensor) -> Figures:
    """Seconds of forward and backward by kernel, the best of a few in turn. The layer stays as it is."""
    twin = copy.deepcopy(layer)
    images.requires_grad_()
    seconds: Figures = dict.fromkeys(get_args(Kernel), float("inf"))
    for repetition in range(1 + REPETITIONS):
        for kernel in get_args(Kernel):
            twin.kernel = kernel
            started = time.perf_counter()
            with torch.autocast("cpu", images.dtype, enabled=images.dtype != torch.float32):
                result = twin(images)
            torch.autograd.grad(result, (images, twin.weight), torch.ones_like(result))
            if repetition > 0:  # the first one prepares the library's code
                seconds[kernel] = min(seconds[kernel], time.perf_counter() - started)
    return seconds
