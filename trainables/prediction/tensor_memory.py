"""Peak memory of the tensors of a training step, counted on fake tensors.

The step and the evaluation run unchanged on fake tensors, which have a shape, a type and a device, but no values.
Everything is counted, also what a custom operator saves for its backward pass. A library's memory within one operator
is not visible.
"""

from __future__ import annotations

import weakref
from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from trainables.sample_shape import SampleShape
from trainables.settings import Settings
from trainables.stages import Timeline
from trainables.step import Step, arranged, autocast, in_floats


@dataclass(frozen=True)
class TensorMemory:
    """Bytes on one device: permanent tensors, and peaks."""

    parameters: int  # statistics of normalisation included
    gradients: int
    optimizer: int
    activations: int  # saved for the backward pass, 16-bit copies of weights included
    training: int  # at the peak of a step, all of the above included
    training_and_evaluation: int  # at the peak of both, one after the other
    retained: int  # peak if freed blocks are kept, and reused only for blocks of similar size (within a factor of 2)


def tensor_memory(
    network: nn.Module,
    settings: Settings,
    shape: SampleShape,
    batch: int,
    evaluation_batch: int,
    device: torch.device,
    kept_below: int = 0,
) -> TensorMemory:
    """Count the memory of `network`, which is on the meta device, trained by the plain step of one process.

    `kept_below`: the allocator keeps freed blocks smaller than this for other small ones, as glibc does, and returns
    larger ones to the system.
    """
    watch = _Watch(kept_below)
    with FakeTensorMode(), watch:
        materialize(network, device)
        parameters = watch.live
        step = Step(network, network, settings, device)
        inputs, targets = shape.empty(batch, device)
        for _ in range(2):  # the second starts with the optimizer's state and gradients of the first
            before, saved = watch.live, _Saved(network)
            with saved_tensors_hooks(saved.pack, lambda tensor: tensor):
                step(inputs, targets, Timeline(device))
        gradients = sum(p.nbytes for p in network.parameters())
        training = watch.peak
        network.eval()
        with torch.no_grad(), autocast(settings, device):
            in_floats(network(arranged(shape.empty(evaluation_batch, device)[0], settings)))
    return TensorMemory(
        parameters=parameters,
        gradients=gradients,
        optimizer=before - parameters - gradients - sum(x.nbytes for x in tree_leaves((inputs, targets))),
        activations=saved.bytes,
        training=training,
        training_and_evaluation=watch.peak,
        retained=sum(watch.most_by_size.values()),
    )


def materialize(network: nn.Module, device: torch.device) -> None:
    """Replace tensors of the meta device by fake tensors of `device`."""

    def fake(tensor: Tensor) -> Tensor:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)

    for module in network.modules():
        for name, parameter in module._parameters.items():
            module._parameters[name] = None if parameter is None else nn.Parameter(fake(parameter))
        for name, buffer in module._buffers.items():
            module._buffers[name] = None if buffer is None else fake(buffer)


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Track the allocation and release of each tensor's storage."""

    def __init__(self, kept_below: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._kept_below = kept_below
        self._storages: dict[int, weakref.ref[Any]] = {}
        self._small = self._most_small = 0
        self.live = self.peak = 0
        self._by_size: Counter[int] = Counter()  # by the bit length of a block's size
        self.most_by_size: Counter[int] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._see(leaf.untyped_storage())
        return result

    def _see(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._storages:
            return

        def gone(_: Any) -> None:
            del self._storages[key]
            self._add(-size)

        self._storages[key] = weakref.ref(storage, gone)
        self._add(size)

    def _add(self, size: int) -> None:
        self.live += size
        bits = abs(size).bit_length()
        self._by_size[bits] += size
        self.most_by_size[bits] = max(self.most_by_size[bits], self._by_size[bits])
        if abs(size) < self._kept_below:
            self._small += size
            self._most_small = max(self._most_small, self._small)
        self.peak = max(self.peak, self._most_small + self.live - self._small)


class _Saved:
    """Count what autograd saves for the backward pass: each storage once, without parameters."""

    def __init__(self, network: nn.Module) -> None:
        self._parameters = {p.untyped_storage()._cdata for p in network.parameters()}
        self._seen: dict[int, weakref.ref[Any]] = {}
        self.bytes = 0

    def pack(self, tensor: Tensor) -> Tensor:
        """Count a tensor that autograd saves."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._parameters and (key not in self._seen or self._seen[key]() is None):
            self._seen[key] = weakref.ref(storage)
            self.bytes += storage.nbytes()
        return tensor
