"""Where to cut a chain of layers into parts that take equally long: what each layer takes, and the cut by it."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor, nn

from trainables.settings import Settings
from trainables.step import autocast

REPETITIONS = 3


@dataclass(frozen=True)
class LayerCost:
    """What a layer takes, and what it gives to the next one."""

    seconds: float  # forward and backward
    shape: torch.Size
    dtype: torch.dtype


def cuts(seconds: Sequence[float], parts: int) -> list[int]:
    """Where the parts begin, and where the last one ends: 0, ..., len(seconds). The longest part is as short as can be.

    By dynamic programming over the first n layers. Of cuts that are equally good the earliest.

    Raises:
        ValueError: there are fewer layers than parts.
    """
    if not 1 <= parts <= len(seconds):
        raise ValueError(f"{len(seconds)} layers cannot be cut into {parts} parts")
    until = [0.0, *accumulate(seconds)]
    best = {n: (until[n], [0, n]) for n in range(1, len(until))}  # longest part, and cuts, of the first n layers
    for _ in range(parts - 1):
        best = {
            n: min((max(best[m][0], until[n] - until[m]), [*best[m][1], n]) for m in best if m < n)
            for n in list(best)[1:]
        }
    return best[len(seconds)][1]


def layer_costs(network: nn.Sequential, images: Tensor, settings: Settings) -> list[LayerCost]:
    """What each layer takes in training on a batch like `images`: the best of a few. The network stays as it is."""
    costs = []
    devices = [images.device] if images.device.type == "cuda" else []
    with torch.random.fork_rng(devices):  # dropout
        for layer in network:
            twin = copy.deepcopy(layer)  # running statistics change
            results = [_timed(twin, images, settings) for _ in range(1 + REPETITIONS)]
            seconds = min(each for each, _ in results[1:])  # the first one prepares the library's code
            images = results[0][1].requires_grad_()
            costs.append(LayerCost(seconds, images.shape, images.dtype))
    return costs


def _timed(layer: nn.Module, images: Tensor, settings: Settings) -> tuple[float, Tensor]:
    """Seconds, and what came out."""
    _wait_for(images.device)
    started = time.perf_counter()
    with autocast(settings, images.device):
        result = layer(images)
    inputs = [tensor for tensor in (images, *layer.parameters()) if tensor.requires_grad]
    torch.autograd.grad(result, inputs, torch.ones_like(result))
    _wait_for(images.device)
    return time.perf_counter() - started, result.detach()


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
