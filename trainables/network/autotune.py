"""Autotuning: the fastest convolution kernel of each layer on this machine, measured once and cached."""

import copy
import statistics
import time
from typing import Literal

import torch
from torch import Tensor, nn

from trainables.machine.measurement_cache import Figures, cached_measurement, machine_fingerprint
from trainables.network.convolution import TILINGS, Convolution, Kernel

Choice = Literal["library", "gemm", "auto"]
GEMM = tuple(TILINGS)
CANDIDATES: dict[Choice, tuple[Kernel, ...]] = {"library": ("library",), "gemm": GEMM, "auto": ("library", *GEMM)}

LARGEST_MAP = 8  # on larger maps the sums of pixels cost as much as the fewer products save
LARGEST_BATCH = 128  # timed; the ratio of the kernels changes little beyond it
REPETITIONS = 5
HOPELESS = 2.0  # times slower than the fastest in two repetitions: not timed any further
VERSION = 3  # of the kernels and their timing; increase it to measure anew


def choose_kernels(
    network: nn.Module, choice: Choice, *, batch_size: int, dtype: torch.dtype, memory_format: torch.memory_format
) -> None:
    """Set the kernel of each convolution of `network`, which is on its device already.

    `batch_size` is that of a step in this process, `dtype` that of the maps. Other devices than a CPU use the first
    candidate. On a CPU, the first configuration of its kind on a machine takes a few seconds.
    """
    for layer in network.modules():
        if isinstance(layer, Convolution) and layer.size <= LARGEST_MAP and layer.in_channels > 3:
            layer.kernel = _fastest(CANDIDATES[choice], layer, batch_size, dtype, memory_format)


def _fastest(
    candidates: tuple[Kernel, ...],
    layer: Convolution,
    batch_size: int,
    dtype: torch.dtype,
    memory_format: torch.memory_format,
) -> Kernel:
    device = layer.weight.device
    if device.type != "cpu" or len(candidates) == 1:
        return candidates[0]
    shape = (min(batch_size, LARGEST_BATCH), layer.in_channels, layer.size, layer.size)
    source = {**machine_fingerprint(device, torch.get_num_threads()), "version": VERSION, "dtype": str(dtype)}
    source |= {"memory_format": str(memory_format), "images": shape, "channels_out": layer.out_channels}
    images = torch.full(shape, 0.5, dtype=dtype).contiguous(memory_format=memory_format)
    seconds = cached_measurement("convolution", source, lambda _: _timed(layer, images))
    return min(candidates, key=lambda kernel: seconds[kernel])


def _timed(layer: Convolution, images: Tensor) -> Figures:
    """Median seconds of forward and backward by kernel, timed alternately. The layer itself is not changed."""
    twin = copy.deepcopy(layer)
    images.requires_grad_()
    seconds: dict[Kernel, list[float]] = {kernel: [] for kernel in CANDIDATES["auto"]}
    for kernel in seconds:  # warm-up, in which the library prepares its code
        _seconds(twin, kernel, images)
    for repetition in range(REPETITIONS):
        for kernel, some in seconds.items():
            if repetition < 2 or min(some) < HOPELESS * min(map(min, seconds.values())):
                some.append(_seconds(twin, kernel, images))
    return {kernel: statistics.median(some) for kernel, some in seconds.items()}


def _seconds(layer: Convolution, kernel: Kernel, images: Tensor) -> float:
    layer.kernel = kernel
    started = time.perf_counter()
    with torch.autocast("cpu", images.dtype, enabled=images.dtype != torch.float32):
        result = layer(images)
    torch.autograd.grad(result, (images, layer.weight), torch.ones_like(result))
    return time.perf_counter() - started
