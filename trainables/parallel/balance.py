"""Balanced cut of a chain of layers: the measured time of each layer, and the cut with the fastest slowest part."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeGuard

import torch
from torch import Tensor, nn

from trainables.contract import InfeasibleError
from trainables.machine.devices import synchronize
from trainables.settings import Settings
from trainables.step import autocast

REPETITIONS = 3


@dataclass(frozen=True)
class LayerCost:
    """Time of a layer, and its output as a contiguous tensor on the meta device."""

    seconds: float  # forward and backward
    output: Tensor


def cuts(seconds: Sequence[float], parts: int) -> list[int]:
    """Return the starts of the parts and the end of the last, 0, ..., len(seconds), with the shortest longest part.

    Dynamic programming over the first n layers; among equally good cuts the earliest.

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


def is_chain(network: nn.Module) -> TypeGuard[nn.Sequential]:
    """Return whether a network is its layers one after the other; a subclass may do something else with them."""
    return isinstance(network, nn.Sequential) and type(network).forward is nn.Sequential.forward


def layer_costs(network: nn.Sequential, images: Tensor, settings: Settings) -> list[LayerCost]:
    """Measure each layer's training step on a batch like `images`, best of a few; the network is not changed."""
    costs = []
    devices = [images.device] if images.device.type == "cuda" else []
    with torch.random.fork_rng(devices):  # dropout
        for layer in network:
            twin = copy.deepcopy(layer)  # training changes running statistics
            results = [_timed(twin, images, settings) for _ in range(1 + REPETITIONS)]
            seconds = min(each for each, _ in results[1:])  # the first one is a warm-up
            images = results[0][1].requires_grad_()
            output = torch.empty(images.shape, dtype=images.dtype, device="meta", requires_grad=True)
            costs.append(LayerCost(seconds, output))
    return costs


def _timed(layer: nn.Module, images: Tensor, settings: Settings) -> tuple[float, Tensor]:
    """Return seconds and the output.

    Raises:
        InfeasibleError: it is no tensor.
    """
    own = images.clone()  # a layer may work in place, which a leaf with a gradient does not take
    synchronize(images.device)
    started = time.perf_counter()
    with autocast(settings, images.device):
        result = layer(own)
    if not isinstance(result, Tensor):
        what = f"a {type(layer).__name__} of the chain returns a {type(result).__name__}"
        raise InfeasibleError(f"strategy pipeline: {what}, expected one tensor")
    inputs = [tensor for tensor in (images, *layer.parameters()) if tensor.requires_grad]
    if inputs:
        torch.autograd.grad(result, inputs, torch.ones_like(result), allow_unused=True)
    synchronize(images.device)
    return time.perf_counter() - started, result.detach()
