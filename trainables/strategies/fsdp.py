"""Fully sharded data parallelism (FSDP2): as `ddp`, but each process keeps only its shard of every weight.

The weights of a block are gathered before its forward and its backward pass and freed afterwards; each process sums
the gradients of its shard. A process holds 1/n of weights, gradients and optimizer state, the gathered weights of one
or two blocks, and the whole network for evaluation and checkpoints: 4 bytes per weight of the 16 and more of `ddp`.
Weights are contiguous whatever `memory_format` says, because FSDP shards no others. Batch normalisation works as in
`ddp`.
"""

from __future__ import annotations

import contextlib
import copy
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.utils._pytree import tree_leaves

from trainables.contract import InfeasibleError, Stage
from trainables.parallel.balance import is_chain
from trainables.sample_shape import SampleShape
from trainables.settings import Settings
from trainables.stages import Timeline
from trainables.step import Step, load_optimizer_state, optimizer_state


def build(model: nn.Module, settings: Settings, shape: SampleShape, device: torch.device) -> Step:
    """Return the step on shards of `model`. Needs `torch.distributed` initialised."""
    return _FsdpStep(model, settings, device)


class _FsdpStep(Step):
    """Step whose optimizer sees shards as plain tensors: with DTensor an update takes 20 ms more and is never fused."""

    IN_PARTS = True

    def __init__(self, model: nn.Module, settings: Settings, device: torch.device) -> None:
        sharded = _sharded(model, device)
        shards = copy.deepcopy(model)  # keeps the parameters' names
        for shard, whole in zip(shards.parameters(), sharded.parameters(), strict=True):
            shard.data = _local(whole)
        super().__init__(shards, sharded, settings, device)
        self.model, self._sharded, self._shards = model, sharded, shards

    def __call__(self, inputs: Any, targets: Any, timeline: Timeline) -> Tensor:
        with _communication_marked(self._sharded, timeline):
            return super().__call__(inputs, targets, timeline)

    def _backward(self, loss: Tensor, timeline: Timeline) -> None:
        torch.autograd.backward(loss)
        timeline.mark("communicate")

    def _update(self, timeline: Timeline) -> None:
        for shard, whole in zip(self._shards.parameters(), self._sharded.parameters(), strict=True):
            shard.grad, whole.grad = None if whole.grad is None else _local(whole.grad), None
        super()._update(timeline)

    @torch.no_grad()
    def gather(self) -> None:
        for weight, sharded in zip(self.model.parameters(), self._sharded.parameters(), strict=True):
            weight.copy_(_gathered(_local(sharded), like=sharded))
        for mine, buffer in zip(self.model.buffers(), self._sharded.buffers(), strict=True):
            dist.broadcast(buffer, src=0)
            mine.copy_(buffer)

    def state_dict(self) -> dict[str, Any]:
        known = self._map_tensors(optimizer_state(self._shards, self._optimizer), _gathered)
        return {"model": self.model.state_dict(), "optimizer": known, "scaler": {}}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        networks = (self._shards, self.model, self._sharded)
        for shard, whole, like in zip(*(network.parameters() for network in networks), strict=True):
            shard.copy_(_shard_of(whole, like))
        for mine, buffer in zip(self.model.buffers(), self._sharded.buffers(), strict=True):
            buffer.copy_(mine)
        load_optimizer_state(self._shards, self._optimizer, self._map_tensors(state["optimizer"], _shard_of))

    def _map_tensors(
        self, state: Mapping[str, Any], change: Callable[[Tensor, Tensor], Tensor]
    ) -> dict[str, dict[str, Any]]:
        """Apply `change(value, parameter)` to the tensors in the optimizer state."""
        names = (name for name, _ in self.model.named_parameters())
        parameters = dict(zip(names, self._sharded.parameters(), strict=True))
        return {
            name: {
                key: change(value, parameters[name]) if isinstance(value, Tensor) and value.ndim else value
                for key, value in known.items()
            }
            for name, known in state.items()
        }


def _sharded(model: nn.Module, device: torch.device) -> nn.Module:
    """Return a sharded copy of `model`, whose gradients are summed over the ranks.

    Raises:
        InfeasibleError: a weight is a single number, which cannot be divided.
    """
    if scalar := next((name for name, weight in model.named_parameters() if not weight.ndim), None):
        raise InfeasibleError(f"strategy fsdp: {scalar} has no dimension to divide; give it the shape (1,)")
    assert dist.group.WORLD is not None
    mesh = DeviceMesh.from_group(dist.group.WORLD, device.type)
    sharded = copy.deepcopy(model).to(memory_format=torch.contiguous_format)
    if is_chain(sharded):
        sharded = nn.Sequential(*_blocks(sharded))
    for module in (*_without_shared_weights(_units(sharded)), sharded):
        unit = fully_shard(module, mesh=mesh)  # returns the same module
        unit.set_gradient_divide_factor(1.0)
        unit.set_force_sum_reduction_for_comms(True)  # Gloo supports no factor, not even 1
    return sharded


def _without_shared_weights(units: Iterable[nn.Module]) -> list[nn.Module]:
    """Return the units that have weights of their own alone; the others' belong to the whole.

    A unit may occur twice, and so may a layer in two units.
    """
    distinct = list(dict.fromkeys(units))
    used = Counter(id(weight) for unit in distinct for weight in unit.parameters())
    with_weights = ((unit, [used[id(weight)] for weight in unit.parameters()]) for unit in distinct)
    return [unit for unit, uses in with_weights if uses and max(uses) == 1]


def _blocks(layers: nn.Sequential) -> Iterator[nn.Sequential]:
    """Split at each layer without weights, the pooling layers: one message per block is faster than one per layer."""
    block: list[nn.Module] = []
    for layer in layers:  # `children` would leave out a layer that occurs twice
        block.append(layer)
        if not list(layer.parameters()):
            yield nn.Sequential(*block)
            block = []
    yield nn.Sequential(*block)


def _units(network: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules that run one after the other: a chain's, or those of the lists and chains in the network.

    Weights beside them belong to the whole, because a network may read such weights directly.
    """
    if isinstance(network, nn.Sequential):
        yield from network
        return
    for child in network.children():
        if isinstance(child, nn.ModuleList | nn.Sequential):
            yield from child


def _local(whole: Tensor) -> Tensor:
    """Return this rank's shard, in the same memory."""
    assert isinstance(whole, DTensor)
    part: Tensor = whole.to_local()
    return part.detach()


def _gathered(part: Tensor, like: Tensor) -> Tensor:
    """Gather the shards of all ranks, which are sharded as the parameter `like`."""
    assert isinstance(like, DTensor)
    return DTensor.from_local(
        part, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
    ).full_tensor()


def _shard_of(whole: Tensor, like: Tensor) -> Tensor:
    """Return this rank's shard of a tensor that all ranks have, sharded as the parameter `like`."""
    assert isinstance(like, DTensor)
    whole = whole.detach().to(like.device).contiguous()
    return _local(distribute_tensor(whole, like.device_mesh, like.placements, src_data_rank=None))


def _first_with_gradient(tree: Any) -> Tensor | None:
    return next((leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor) and leaf.requires_grad), None)


@contextlib.contextmanager
def _communication_marked(sharded: nn.Module, timeline: Timeline) -> Iterator[None]:
    """Mark FSDP's communication in profiled steps, by hooks around FSDP's own.

    FSDP gathers weights in hooks before a block and on a block's result. Hooks run in the order of their registration,
    so these hooks enclose FSDP's. FSDP sums gradients in a graph node before the block, the first block's at the end.
    """
    handles: list[Any] = []

    def mark(stage: Stage) -> Callable[..., None]:
        return lambda *_: timeline.mark(stage)

    def when_gathered(block: nn.Module, inputs: Any, named: Any) -> None:
        timeline.mark("communicate")
        tensor = _first_with_gradient((inputs, named))
        if tensor is not None and (summing := tensor.grad_fn) is not None:
            summing.register_prehook(mark("backward"))
            summing.register_hook(mark("communicate"))
        elif (weight := _first_with_gradient(list(block.parameters()))) is not None:  # its gradient is the last one
            handles.append(weight.register_post_accumulate_grad_hook(mark("backward")))  # type: ignore[no-untyped-call]

    def when_back(stage: Stage) -> Callable[[nn.Module, Any, Any], None]:
        def hook(block: nn.Module, inputs: Any, result: Any) -> None:
            if (tensor := _first_with_gradient(result)) is not None:
                tensor.register_hook(mark(stage))  # type: ignore[no-untyped-call]

        return hook

    if timeline.on:
        for block in (block for block in _units(sharded) if isinstance(block, FSDPModule)):
            handles.append(block.register_forward_pre_hook(mark("forward"), prepend=True))
            handles.append(block.register_forward_pre_hook(when_gathered, with_kwargs=True))
            handles.append(block.register_forward_hook(when_back("backward"), prepend=True))
            handles.append(block.register_forward_hook(when_back("communicate")))
    yield
    for handle in handles:
        handle.remove()
