"""Pipeline parallelism: consecutive stages of the network in one process each; micro-batches pass through them.

The cut minimises the time of the slowest stage, from the measured times of the layers. With one micro-batch the stages
work in turn, which is plain model parallelism. Batch normalisation sees one micro-batch at a time. Only the first
process reads samples; it sends the targets to the last one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import chain, pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from trainables.contract import InfeasibleError
from trainables.parallel.balance import LayerCost, cuts, is_chain, layer_costs
from trainables.parallel.layouts import check_microbatches, samples_at_a_time
from trainables.sample_shape import SampleShape
from trainables.settings import Settings
from trainables.stages import Timeline
from trainables.step import Step, arranged, autocast, loss_of, optimizer_state

SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}


def build(model: nn.Module, settings: Settings, shape: SampleShape, device: torch.device) -> Step:
    """Return this process's stage of `model`, a chain of layers. Needs `torch.distributed` initialised.

    Raises:
        InfeasibleError: the network is no chain, there are fewer layers than processes, the batch has no such
            micro-batches, or two stages share a weight.
    """
    if reason := reason_against(model, shape):
        raise InfeasibleError(f"strategy pipeline: {reason}")
    assert is_chain(model)
    world_size = dist.get_world_size()
    check_microbatches(settings, world_size)
    if world_size > len(model):
        raise InfeasibleError(f"world_size {world_size}: the network has {len(model)} layers to share")
    costs: list[list[LayerCost] | None] = [None]
    if dist.get_rank() == 0:  # the others wait for its costs, so that all cut the same way
        costs = [layer_costs(model, _micro_batch(model, shape, settings, device), settings)]
    dist.broadcast_object_list(costs, src=0)
    assert costs[0] is not None
    return _PipelineStep(model, costs[0], settings, shape, device)


def reason_against(model: nn.Module, shape: SampleShape) -> str | None:
    """Return why a network cannot be cut into stages, however many processes there are; None: it may."""
    if not is_chain(model):
        return "needs an nn.Sequential without a forward of its own, or `blocks`"
    if not isinstance(shape.inputs, Tensor) or not isinstance(shape.targets, Tensor):
        return "inputs and targets must be one tensor each"
    return None


def _micro_batch(model: nn.Module, shape: SampleShape, settings: Settings, device: torch.device | str) -> Tensor:
    """Return the inputs of a micro-batch, all zero; numbers with a fraction have the type of the weights."""
    inputs, _ = shape.empty(samples_at_a_time(settings, dist.get_world_size()), device)
    weight = next(model.parameters(), None)
    if inputs.is_floating_point() and weight is not None:
        inputs = inputs.to(weight.dtype)
    zeros: Tensor = arranged(inputs.zero_(), settings)
    return zeros


class _PipelineStep(Step):
    """Training step of one stage. While it trains, its process frees the memory of the other stages' weights."""

    IN_PARTS = True

    def __init__(
        self,
        model: nn.Sequential,
        costs: list[LayerCost],
        settings: Settings,
        shape: SampleShape,
        device: torch.device,
    ) -> None:
        self._shape = shape
        self._rank, self._last = dist.get_rank(), dist.get_world_size() - 1
        ends = cuts([cost.seconds for cost in costs], self._last + 1)
        self._parts = [model[first:end] for first, end in pairwise(ends)]
        _check_own_weights(model, self._parts)
        others = [part for rank, part in enumerate(self._parts) if rank != self._rank]
        weights = chain.from_iterable(part.parameters() for part in others)
        own = self._parts[self._rank]
        kept = {weight.untyped_storage().data_ptr() for weight in own.parameters()}
        self._others = [  # whose memory is no other's
            weight
            for weight in weights
            if (storage := weight.untyped_storage()).nbytes() == weight.nbytes and storage.data_ptr() not in kept
        ]
        super().__init__(own, own, settings, device)
        self.model = model
        self._dtype = next(model.parameters()).dtype
        # Gloo sends from the host's memory
        self._message_device = torch.device("cpu") if dist.get_backend() == "gloo" else device
        first, end = ends[self._rank], ends[self._rank + 1]
        self._stage = _Stage(
            _Computation(own, settings, device, None if self._rank == self._last else self._message_device),
            self._rank,
            len(self._parts),
            self._message_device,
            input_args=costs[first - 1].output if first else _micro_batch(model, shape, settings, "meta"),
            output_args=costs[end - 1].output,
        )
        self._schedule = SCHEDULES[settings.schedule](
            self._stage, settings.num_microbatches, loss_fn=self._loss, scale_grads=False
        )

    def __call__(self, inputs: Any, targets: Any, timeline: Timeline) -> Tensor:
        self._allocate_others(False)
        self._optimizer.zero_grad(set_to_none=True)
        self._stage.timeline = timeline
        losses: list[Tensor] = []
        if self._rank == 0:
            expected, dtype = (self._settings.batch_size, *self._shape.targets.shape), self._shape.targets.dtype
            if targets.shape != expected or targets.dtype != dtype:
                found = f"targets are {targets.dtype} of shape {tuple(targets.shape)}"
                what = f"{found}, expected {dtype} of shape {expected}, a row for each sample, as the samples have them"
                raise InfeasibleError(f"strategy pipeline: {what}")
            sending = dist.isend(targets.to(self._message_device).contiguous(), self._last)
            self._schedule.step(arranged(inputs, self._settings))
            assert sending is not None
            sending.wait()
        elif self._rank < self._last:
            self._schedule.step()
        else:
            _, arriving = self._shape.empty(self._settings.batch_size, self._message_device)
            dist.recv(arriving, 0)
            self._schedule.step(target=arriving.to(self._device), losses=losses)
        loss = sum(losses, torch.zeros((), dtype=self._dtype, device=self._device)).detach()
        timeline.mark("communicate")
        self._update(timeline)
        return loss

    def _loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return a micro-batch's part of the mean loss; the parts and their gradients add up."""
        with autocast(self._settings, self._device):
            loss = loss_of(outputs, targets, self._settings, 1 / self._settings.num_microbatches)
        self._stage.timeline.mark("forward")
        return loss

    def gather(self) -> None:
        self._allocate_others(True)
        for owner, part in enumerate(self._parts):
            for tensor in part.state_dict().values():
                dist.broadcast(tensor, src=owner)

    def state_dict(self) -> dict[str, Any]:
        known = optimizer_state(self.model, self._optimizer)
        mine = {  # on the host: another process may not have this device
            name: {key: value.cpu() if isinstance(value, Tensor) else value for key, value in each.items()}
            for name, each in known.items()
        }
        everybody: list[dict[str, Any]] | None = [{} for _ in self._parts] if self._rank == 0 else None
        dist.gather_object(mine, everybody, dst=0)
        whole = {name: each for part in everybody or [mine] for name, each in part.items()}
        return {"model": self.model.state_dict(), "optimizer": whole, "scaler": {}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._allocate_others(True)
        super().load_state_dict(state)

    def _allocate_others(self, keep: bool) -> None:
        """Allocate or free the memory of the other stages' weights."""
        for weight in self._others:
            weight.untyped_storage().resize_(weight.nbytes if keep else 0)


def _check_own_weights(model: nn.Module, parts: list[nn.Sequential]) -> None:
    """Check that each weight is of one stage alone, whose process trains it.

    Raises:
        InfeasibleError: it is not.
    """
    for name, weight in model.named_parameters():
        if sum(any(weight is each for each in part.parameters()) for part in parts) > 1:
            raise InfeasibleError(f"strategy pipeline: {name} is a weight of two stages")


class _Stage(PipelineStage):
    """Stage that marks the time between micro-batches as communication."""

    timeline: Timeline

    def forward_one_chunk(self, *given: Any, **named: Any) -> Any:
        self.timeline.mark("communicate")
        result = super().forward_one_chunk(*given, **named)
        self.timeline.mark("forward")
        return result

    def backward_one_chunk(self, *given: Any, **named: Any) -> None:
        self.timeline.mark("communicate")
        super().backward_one_chunk(*given, **named)
        self.timeline.mark("backward")


class _Computation(nn.Module):
    """Layers that compute on `device` in the settings' precision and exchange contiguous messages."""

    def __init__(
        self, layers: nn.Module, settings: Settings, device: torch.device, target: torch.device | None
    ) -> None:
        super().__init__()
        self.layers = layers
        self._settings, self._device, self._target = settings, device, target

    def forward(self, inputs: Tensor) -> Tensor:
        inputs = arranged(inputs.to(self._device), self._settings)
        if inputs.is_leaf and inputs.requires_grad:  # as the last stage left it; the first layer may work in place
            inputs = inputs.clone()
        with autocast(self._settings, self._device):
            result: Tensor = self.layers(inputs)
        if self._target is None:
            return result
        if result.requires_grad:
            # the gradient arrives contiguous; sums round differently then, and the loss would depend on the cut
            result.register_hook(partial(arranged, settings=self._settings))  # type: ignore[no-untyped-call]
        # flattened first: the strides of axes of length 1 are arbitrary, and PyTorch 2.11 compares them
        return result.to(self._target).flatten().view(result.shape)
