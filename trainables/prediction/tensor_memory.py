"""Peak memory of the tensors of a training step, counted on fake tensors.

The step and the evaluation run unchanged on fake tensors, which have a shape, a type and a device, but no values.
Everything is counted, also what a custom operator saves for its backward pass. A library's memory within one operator
is not visible. On CUDA, the memory that PyTorch's allocator reserves for these tensors is simulated, with the
workspaces of matrix products and of flash attention, which come from the same allocator. Those of cuDNN are unknown.
"""

from __future__ import annotations

import contextlib
import weakref
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from trainables.parallel.ranks import bucket_groups, flattened
from trainables.plan import Share
from trainables.prediction.caching_allocator import MIB, CachingAllocator
from trainables.sample_shape import SampleShape
from trainables.settings import Settings
from trainables.stages import Timeline
from trainables.step import Step, arranged, autocast, in_floats
from trainables.strategy_table import captures

CUBLAS_WORKSPACE = 32 * MIB  # PyTorch's default on Hopper and newer GPUs; 8 MiB on older ones
PRODUCTS = {f"aten::{name}" for name in ("mm", "bmm", "addmm", "baddbmm")}
PARTIAL_SUMS = 132 * MIB  # at most, of a sum over leading axes: 1 MiB for each multiprocessor of an H100
FLASH_BACKWARD = "aten::_scaled_dot_product_flash_attention_backward"
# Updates in place, which allocate nothing. They have no fake kernels, and so FakeTensorMode would run them on real
# memory of the device: three times the parameters, or an error where it is full.
UPDATES = (torch.ops.aten._fused_sgd_, torch.ops.aten._fused_adamw_)


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
    graph: int  # CUDA only: reserved for the memory of a captured graph
    cached: int  # CUDA only: reserved beyond this and the peak, for gaps and blocks that are kept


def tensor_memory(
    network: nn.Module,
    settings: Settings,
    shape: SampleShape,
    batch: int,
    evaluation_batch: int,
    device: torch.device,
    kept_below: int = 0,
    bucket_bytes: int = 0,
) -> TensorMemory:
    """Count the memory of `network`, which is on the meta device, trained by the plain step of one process.

    Where the step is captured, it then runs once more kernel by kernel, as `CapturedStep` does.

    `kept_below`: the allocator keeps freed blocks smaller than this for other small ones, as glibc does, and returns
    larger ones to the system. `bucket_bytes`: gradients lie in vectors of about this size; 0: each by itself.
    """
    watch = _Watch(kept_below, CachingAllocator() if device.type == "cuda" else None)
    captured = captures(settings, device.type)
    pool = "captured stream" if captured else "default"
    with FakeTensorMode(allow_non_fake_inputs=True), watch:  # with constants that a file made itself
        materialize(network, device)
        parameters = watch.live
        # a tensor without values is refused as a graph's learning rate
        step = Step(network, network, replace(settings, cuda_graphs=False, batch_size=batch), device, Share())
        if bucket_bytes:
            _collect_gradients(network, bucket_bytes)
        inputs, targets = shape.empty(batch, device)
        for _ in range(2):  # the second starts with the optimizer's state and gradients of the first
            before, saved = watch.live, _Saved(network)
            with saved_tensors_hooks(saved.pack, lambda tensor: tensor), watch.allocating(pool):
                step(inputs, targets, Timeline(device))
        if captured:
            captured_inputs, captured_targets = tree_map(torch.clone, (inputs, targets))
            network.zero_grad(set_to_none=True)
            watch.release_cached()
            with watch.allocating("graph"):
                step(captured_inputs, captured_targets, Timeline(device))
            with watch.allocating(pool):
                step(inputs, targets, Timeline(device))
        gradients = sum(p.nbytes for p in network.parameters() if p.requires_grad)
        training = watch.peak
        network.eval()
        with torch.no_grad(), autocast(settings, device):
            in_floats(network(arranged(shape.empty(evaluation_batch, device)[0], settings)))
    return TensorMemory(
        parameters=parameters,
        gradients=gradients,
        optimizer=before - parameters - gradients - sum(x.nbytes for x in tree_leaves((inputs, targets))),
        activations=saved.bytes // settings.accumulation_steps,
        training=training,
        training_and_evaluation=watch.peak,
        retained=sum(watch.most_by_size.values()),
        graph=watch.reserved("graph"),
        cached=max(0, watch.reserved() - watch.reserved("graph") - watch.peak),
    )


def _collect_gradients(network: nn.Module, bucket_bytes: int) -> None:
    """Move each gradient to its place in a bucket as soon as it is there, as DDP does."""
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    for group in bucket_groups(reversed(trained), bucket_bytes):
        for parameter, place in zip(group, flattened(group)[1], strict=True):

            def moved(parameter: Tensor, place: Tensor = place) -> None:
                assert parameter.grad is not None
                parameter.grad = place.copy_(parameter.grad)

            parameter.register_post_accumulate_grad_hook(moved)  # type: ignore[no-untyped-call]


def materialize(network: nn.Module, device: torch.device) -> None:
    """Replace tensors of the meta device by fake tensors of `device`; modules that share one still do."""
    fakes: dict[Tensor | None, Any] = {None: None}

    def fake(tensor: Tensor | None) -> Any:
        if tensor is not None and tensor not in fakes:
            new = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)
            of_network = isinstance(tensor, nn.Parameter)
            fakes[tensor] = nn.Parameter(new, tensor.requires_grad) if of_network else new
        return fakes[tensor]

    for module in network.modules():
        for tensors in (module._parameters, module._buffers):
            for name, tensor in tensors.items():
                tensors[name] = fake(tensor)


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Track the allocation and release of each tensor's storage."""

    def __init__(self, kept_below: int, allocator: CachingAllocator | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._allocator, self._pool = allocator, "default"
        self._kept_below = kept_below
        self._storages: dict[int, weakref.ref[Any]] = {}
        self._small = self._most_small = 0
        self.live = self.peak = 0
        self._by_size: Counter[int] = Counter()  # by the bit length of a block's size
        self.most_by_size: Counter[int] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket in UPDATES:
            return None
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._see(leaf.untyped_storage())
        if self._allocator is not None and (size := _workspace_bytes(func, args)):
            self._allocator.free(self._allocator.allocate(size, self._pool))
            self._add(size)
            self._add(-size)
        return result

    @contextlib.contextmanager
    def allocating(self, pool: str) -> Iterator[None]:
        """Take the memory of new tensors from this pool of the CUDA allocator."""
        before, self._pool = self._pool, pool
        try:
            yield
        finally:
            self._pool = before

    def release_cached(self) -> None:
        """Release the memory that the CUDA allocator keeps."""
        if self._allocator is not None:
            self._allocator.release_cached()

    def reserved(self, pool: str | None = None) -> int:
        """Return the bytes that the CUDA allocator has reserved for a pool, or at its peak for all; 0 without one."""
        if self._allocator is None:
            return 0
        return self._allocator.peak if pool is None else self._allocator.by_pool[pool]

    def _see(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._storages:
            return
        allocator = self._allocator if size else None
        block = allocator.allocate(size, self._pool) if allocator else None

        def gone(_: Any) -> None:
            del self._storages[key]
            self._add(-size)
            if allocator and block:
                allocator.free(block)

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


def _workspace_bytes(func: Any, args: Any) -> int:
    """Return the memory that an operator takes from the CUDA allocator while it runs, beside its results.

    The sizes are those of PyTorch 2.15's own CUDA code.
    """
    name = func._schema.name
    if name in PRODUCTS:
        return CUBLAS_WORKSPACE
    if name == FLASH_BACKWARD:  # the gradient of the queries in fp32, contiguous copies of the result and its gradient
        return 8 * int(args[1].numel())
    if name == "aten::sum" and len(args) > 1 and not _over_last_axis(args[0], args[1]):
        return min(8 * int(args[0].numel()), PARTIAL_SUMS)
    return 0


def _over_last_axis(tensor: Tensor, axes: list[int] | None) -> bool:
    return not axes or any(axis % tensor.ndim == tensor.ndim - 1 for axis in axes)


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
