"""The most memory that the tensors of a training step take at a time, found on tensors that have no numbers.

The step and the evaluation are run as they are, with the same operators in the same order, on fake tensors: they have a
shape, a type and a device, but nothing is stored or computed. Whatever the network does is counted, also what an
operator of our own keeps for its backward pass. What a library takes inside one operator is not seen.
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

from trainables.settings import Settings
from trainables.stages import Timeline
from trainables.step import Step, arranged, autocast


@dataclass(frozen=True)
class Liveness:
    """Bytes on one device: of what is always there, and of the most that is there at a time."""

    parameters: int  # statistics of normalisation too
    gradients: int
    optimizer: int
    activations: int  # kept for the backward pass, as 16-bit copies of weights are
    training: int  # at the peak of a step, all of the above included
    training_and_evaluation: int  # at the peak of both, one after the other
    retained: int  # if freed blocks are kept, and had again for blocks of nearly their size (within a factor of 2) only


def liveness(
    network: nn.Module, settings: Settings, batch: int, evaluation_batch: int, device: torch.device, kept_below: int = 0
) -> Liveness:
    """Of `network`, which is on the meta device, trained by the plain step of one process.

    `kept_below`: an allocator keeps freed blocks that are smaller, for others that are; glibc does. Larger ones are
    returned to the system.
    """
    watch = _Watch(kept_below)
    with FakeTensorMode(), watch:
        materialize(network, device)
        parameters = watch.live
        step = Step(network, network, settings, device)
        images, labels = unread_batch(batch, device)
        for _ in range(2):  # the second has the optimizer's state and the gradients of the first
            before, saved = watch.live, _Saved(network)
            with saved_tensors_hooks(saved.pack, lambda tensor: tensor):
                step(images, labels, Timeline(device))
        gradients = sum(p.nbytes for p in network.parameters())
        training = watch.peak
        _evaluate(network, settings, torch.empty(evaluation_batch, 3, 32, 32, device=device))
    return Liveness(
        parameters=parameters,
        gradients=gradients,
        optimizer=before - parameters - gradients - images.nbytes - labels.nbytes,
        activations=saved.bytes,
        training=training,
        training_and_evaluation=watch.peak,
        retained=sum(watch.most_by_size.values()),
    )


def materialize(network: nn.Module, device: torch.device) -> None:
    """Put fake tensors of `device` in the place of those of the meta device."""
    for module in network.modules():
        for name, parameter in module._parameters.items():
            module._parameters[name] = None if parameter is None else nn.Parameter(_fake(parameter, device))
        for name, buffer in module._buffers.items():
            module._buffers[name] = None if buffer is None else _fake(buffer, device)


def unread_batch(size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Pictures and labels, whatever is in them."""
    return torch.empty(size, 3, 32, 32, device=device), torch.empty(size, dtype=torch.long, device=device)


def _fake(tensor: Tensor, device: torch.device) -> Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)


def _evaluate(network: nn.Module, settings: Settings, images: Tensor) -> None:
    network.eval()
    with torch.no_grad(), autocast(settings, images.device):
        network(arranged(images, settings)).float()


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees each tensor's storage come and go."""

    def __init__(self, kept_below: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._kept_below = kept_below
        self._storages: dict[int, weakref.ref[Any]] = {}
        self._small = self._most_small = 0
        self.live = self.peak = 0
        self._by_size: Counter[int] = Counter()  # by the number of bits of a block's size
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
    """Counts what autograd keeps for the backward pass: each storage once, parameters not at all."""

    def __init__(self, network: nn.Module) -> None:
        self._parameters = {p.untyped_storage()._cdata for p in network.parameters()}
        self._seen: dict[int, weakref.ref[Any]] = {}
        self.bytes = 0

    def pack(self, tensor: Tensor) -> Tensor:
        """For autograd to call with each tensor that it keeps."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._parameters and (key not in self._seen or self._seen[key]() is None):
            self._seen[key] = weakref.ref(storage)
            self.bytes += storage.nbytes()
        return tensor
