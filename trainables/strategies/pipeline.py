"""Pipeline: the network cut into consecutive stages, a process each; micro-batches follow one another through them.

It is cut so that the slowest stage is as fast as can be, by what each layer takes here. With one micro-batch the stages
work in turn, which is plain model parallelism. Batch normalisation sees one micro-batch at a time. The first process
alone reads pictures, and sends the labels to the last one: 8 bytes per picture, instead of reading everything twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from trainables.contract import InfeasibleError
from trainables.network.vgg import PICTURE_SIZE
from trainables.parallel.balance import LayerCost, cuts, layer_costs
from trainables.parallel.layouts import check_microbatches, pictures_at_a_time
from trainables.pictures.loaders import Share
from trainables.settings import Settings
from trainables.stages import Timeline
from trainables.step import arranged, autocast, load_optimizer_state, loss_of, optimizer, optimizer_state

SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}


def share(rank: int, world_size: int) -> Share:
    """The first process reads all, the others nothing."""
    return Share() if rank == 0 else Share(None)


def build(model: nn.Module, settings: Settings, device: torch.device) -> PipelineStep:
    """This process's stage of `model`, a chain of layers. `torch.distributed` is initialised.

    Raises:
        InfeasibleError: there are fewer layers than processes, or no such micro-batches.
    """
    assert isinstance(model, nn.Sequential)
    world_size = dist.get_world_size()
    check_microbatches(settings, world_size)
    if world_size > len(model):
        raise InfeasibleError(f"world_size {world_size}: the network has {len(model)} layers to share")
    return PipelineStep(model, _agreed_costs(model, settings, device), settings, device)


def _agreed_costs(model: nn.Sequential, settings: Settings, device: torch.device) -> list[LayerCost]:
    """As the first process measures them while the others wait, so that all cut alike."""
    costs: list[list[LayerCost] | None] = [None]
    if dist.get_rank() == 0:
        costs = [layer_costs(model, _pictures(model, settings, device), settings)]
    dist.broadcast_object_list(costs, src=0)
    assert costs[0] is not None
    return costs[0]


def _pictures(model: nn.Module, settings: Settings, device: torch.device | str) -> Tensor:
    """A black micro-batch, in the type of the weights."""
    shape = (pictures_at_a_time(settings, dist.get_world_size()), 3, PICTURE_SIZE, PICTURE_SIZE)
    return arranged(torch.zeros(shape, dtype=next(model.parameters()).dtype, device=device), settings)


class PipelineStep:
    """Trains one stage. Only while it trains does a process do without the weights of the others."""

    def __init__(self, model: nn.Sequential, costs: list[LayerCost], settings: Settings, device: torch.device) -> None:
        self.model = model
        self._settings, self._device = settings, device
        self._rank, self._last = dist.get_rank(), dist.get_world_size() - 1
        ends = cuts([cost.seconds for cost in costs], self._last + 1)
        self._parts = [model[first:end] for first, end in pairwise(ends)]
        own = self._parts[self._rank]
        self._optimizer = optimizer(own, settings)
        self._dtype = next(model.parameters()).dtype
        # Gloo's messages come from the host's memory and go there.
        self._post = torch.device("cpu") if dist.get_backend() == "gloo" else device
        first, end = ends[self._rank], ends[self._rank + 1]
        self._stage = _Stage(
            _Computation(own, settings, device, None if self._rank == self._last else self._post),
            self._rank,
            len(self._parts),
            self._post,
            input_args=_like(costs[first - 1]) if first else _pictures(model, settings, "meta"),
            output_args=_like(costs[end - 1]),
        )
        self._schedule = SCHEDULES[settings.schedule](
            self._stage, settings.num_microbatches, loss_fn=self._loss, scale_grads=False
        )

    def __call__(self, images: Tensor, labels: Tensor, timeline: Timeline) -> Tensor:
        """The mean loss where the last stage is, elsewhere zero."""
        self._keep_others(False)
        self._optimizer.zero_grad(set_to_none=True)
        self._stage.timeline = timeline
        loss = self._run(images, labels)
        timeline.mark("communicate")
        self._optimizer.step()
        timeline.mark("update")
        return loss

    def _run(self, images: Tensor, labels: Tensor) -> Tensor:
        losses: list[Tensor] = []
        if self._rank == 0:
            labels = labels.to(self._post)
            sending = dist.isend(labels, self._last)
            self._schedule.step(arranged(images, self._settings))
            assert sending is not None
            sending.wait()
        elif self._rank < self._last:
            self._schedule.step()
        else:
            labels = torch.empty(self._settings.batch_size, dtype=torch.int64, device=self._post)
            dist.recv(labels, 0)
            self._schedule.step(target=labels.to(self._device), losses=losses)
        return sum(losses, torch.zeros((), dtype=self._dtype, device=self._device)).detach()

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """A micro-batch's part: the parts add up to the mean, and so do their gradients."""
        with autocast(self._settings, self._device):
            loss = loss_of(logits, labels, self._settings)
        self._stage.timeline.mark("forward")
        return loss

    def set_learning_rate(self, value: float) -> None:
        """For the steps that follow."""
        for group in self._optimizer.param_groups:
            group["lr"] = value

    def gather(self) -> None:
        """Each stage's weights and running statistics, from its process."""
        self._keep_others(True)
        for owner, part in enumerate(self._parts):
            for tensor in part.state_dict().values():
                dist.broadcast(tensor, src=owner)

    def metrics(self) -> dict[str, float]:
        """Nothing but what the instruments tell."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Network, and optimizer by the names of the parameters."""
        known = optimizer_state(self.model, self._optimizer)
        mine = {name: {key: _on_host(value) for key, value in each.items()} for name, each in known.items()}
        everybody: list[dict[str, Any]] | None = [{} for _ in self._parts] if self._rank == 0 else None
        dist.gather_object(mine, everybody, dst=0)
        whole = {name: each for part in everybody or [mine] for name, each in part.items()}
        return {"model": self.model.state_dict(), "optimizer": whole, "scaler": {}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there; of the optimizer's state only this stage's is taken."""
        self._keep_others(True)
        self.model.load_state_dict(state["model"])
        load_optimizer_state(self.model, self._optimizer, state["optimizer"])

    def _keep_others(self, keep: bool) -> None:
        """Room for the weights of the other stages, or none."""
        for part in (part for rank, part in enumerate(self._parts) if rank != self._rank):
            for weight in part.parameters():
                weight.untyped_storage().resize_(weight.nbytes if keep else 0)


class _Stage(PipelineStage):
    """What is done between forward and backward of micro-batches is waiting for other stages."""

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
    """Layers that compute on `device` and in the settings' precision, between messages, which lie in plain order."""

    def __init__(self, layers: nn.Module, settings: Settings, device: torch.device, post: torch.device | None) -> None:
        super().__init__()
        self.layers = layers
        self._settings, self._device, self._post = settings, device, post

    def forward(self, images: Tensor) -> Tensor:
        images = arranged(images.to(self._device), self._settings)
        with autocast(self._settings, self._device):
            result: Tensor = self.layers(images)
        if self._post is None:
            return result
        # by way of one axis: strides of axes of length 1 may be any, and PyTorch 2.11 compares them
        return result.to(self._post).flatten().view(result.shape)


def _like(cost: LayerCost) -> Tensor:
    """What the layer gives, without numbers."""
    return torch.empty(cost.shape, dtype=cost.dtype, device="meta", requires_grad=True)


def _on_host(value: Any) -> Any:
    """Not on a device that another process may not have."""
    return value.cpu() if isinstance(value, Tensor) else value
