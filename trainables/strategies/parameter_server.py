"""Parameter server: rank 0 keeps the weights and the optimizer, the other ranks compute gradients for it.

`server: synchronous`: the server waits for the gradients of all workers, updates once, sends the weights to all.

`server: asynchronous`: a worker sends its gradient and gets the newest weights, and waits for no other worker; the
server applies each gradient as it comes (Dean et al. 2012, Downpour SGD; Li et al. 2014, OSDI). There are as many
updates in a step as workers. Each takes its gradient times the number of workers, as if it were the whole batch's, at
the learning rate divided by that number: in a step the weights go as far, and decay as much, as by one update. A
gradient's staleness is how many updates came between the weights it was computed with and its own.

Batch normalisation sees each worker's share only; the running statistics that count are those of the first worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainables.contract import InfeasibleError, patience_seconds
from trainables.parallel.flat import side_by_side
from trainables.pictures.loaders import Share
from trainables.settings import Settings
from trainables.stages import Timeline
from trainables.step import Step

SERVER, FIRST_WORKER = 0, 1


def share(rank: int, world_size: int) -> Share:
    """The server reads no pictures, the workers share them."""
    return Share(None if rank == SERVER else rank - FIRST_WORKER, world_size - 1)


def build(model: nn.Module, settings: Settings, device: torch.device) -> Step:
    """What this rank has to do. `torch.distributed` is initialised.

    Raises:
        InfeasibleError: there is no rank besides the server.
    """
    if dist.get_world_size() < 2:
        raise InfeasibleError("strategy parameter_server needs at least 2 processes: a server and a worker")
    if dist.get_rank() != SERVER:
        return _Worker(model, settings, device)
    return (_Asynchronous if settings.server == "asynchronous" else _Synchronous)(model, settings, device)


class _Node(Step):
    """What all ranks have: the weights in one vector and the gradients in another, each of them one message."""

    def __init__(self, model: nn.Module, settings: Settings, device: torch.device) -> None:
        parameters = list(model.parameters())
        self._weights, weights = side_by_side(parameters)
        self._gradients, gradients = side_by_side(parameters)
        for parameter, weight, gradient in zip(parameters, weights, gradients, strict=True):
            parameter.data = weight.copy_(parameter.data)
            parameter.grad = gradient
        super().__init__(model, model, settings, device)
        self._post = _Post(self._weights, through_host=settings.server == "asynchronous" and device.type == "cuda")

    def gather(self) -> None:
        dist.broadcast(self._weights, src=SERVER)
        for buffer in self.model.buffers():
            dist.broadcast(buffer, src=FIRST_WORKER)


class _Worker(_Node):
    """Computes gradients; its own optimizer is never used."""

    def __call__(self, images: Tensor, labels: Tensor, timeline: Timeline) -> Tensor:
        loss = self._forward_and_loss(images, labels, timeline)
        self._gradients.zero_()
        torch.autograd.backward(loss)
        timeline.mark("backward")
        self._post.send(self._gradients, SERVER)
        self._post.receive(self._weights, SERVER)
        timeline.mark("communicate")
        return loss.detach()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict({**state, "optimizer": {}})


class _Synchronous(_Node):
    """A server that updates once all gradients of a step are there."""

    def __init__(self, model: nn.Module, settings: Settings, device: torch.device) -> None:
        super().__init__(model, settings, device)
        self._workers = range(FIRST_WORKER, dist.get_world_size())
        self._arriving = [torch.empty_like(self._gradients) for _ in self._workers]

    def __call__(self, images: Tensor, labels: Tensor, timeline: Timeline) -> Tensor:
        coming = [dist.irecv(room, worker) for room, worker in zip(self._arriving, self._workers, strict=True)]
        _wait(coming)
        timeline.mark("communicate")
        torch.sum(torch.stack(self._arriving), dim=0, out=self._gradients)  # in the order of the ranks
        self._optimizer.step()
        timeline.mark("update")
        _wait([dist.isend(self._weights, worker) for worker in self._workers])
        timeline.mark("communicate")
        return self._weights.new_zeros(())


class _Asynchronous(_Node):
    """A server that applies each gradient as it comes. A step of it is over after as many as there are workers.

    So all ranks have taken as many steps when an epoch ends, and no message is under way then.
    """

    def __init__(self, model: nn.Module, settings: Settings, device: torch.device) -> None:
        super().__init__(model, settings, device)
        self._num_workers = dist.get_world_size() - 1
        self._staleness = Staleness()

    def __call__(self, images: Tensor, labels: Tensor, timeline: Timeline) -> Tensor:
        for _ in range(self._num_workers):
            worker = self._post.receive(self._gradients, None)
            timeline.mark("communicate")
            self._gradients *= self._num_workers
            self._optimizer.step()
            self._staleness.update(worker)
            timeline.mark("update")
            self._post.send(self._weights, worker)
            timeline.mark("communicate")
        return self._weights.new_zeros(())

    def set_learning_rate(self, value: float) -> None:
        super().set_learning_rate(value / self._num_workers)

    def gather(self) -> None:
        super().gather()
        self._staleness.all_read()

    def metrics(self) -> dict[str, float]:
        return self._staleness.metrics()


class Staleness:
    """Of gradients, in updates: how many came between a worker's reading of the weights and its own."""

    def __init__(self) -> None:
        self._updates = self._sum = self._most = 0
        self._read: dict[int, int] = {}  # updates so far, when that worker read the weights
        self._read_by_all = 0

    def update(self, worker: int) -> None:
        """With this worker's gradient, which reads the weights afterwards."""
        staleness = self._updates - self._read.get(worker, self._read_by_all)
        self._sum, self._most = self._sum + staleness, max(self._most, staleness)
        self._updates += 1
        self._read[worker] = self._updates

    def all_read(self) -> None:
        """All workers have the newest weights."""
        self._read_by_all = self._updates
        self._read.clear()

    def metrics(self) -> dict[str, float]:
        """Over all updates so far; nothing before the first one."""
        if not self._updates:
            return {}
        return {"gradient_staleness_mean": self._sum / self._updates, "gradient_staleness_max": float(self._most)}


class _Post:
    """Sends and receives vectors like `vector`, one at a time.

    Whose message comes first is known to Gloo only; on a GPU those messages therefore go `through_host`.
    """

    def __init__(self, vector: Tensor, *, through_host: bool) -> None:
        patience = timedelta(seconds=patience_seconds())
        group = dist.new_group(timeout=patience, backend="gloo") if through_host else None
        self._group = cast(dist.ProcessGroup | None, group)  # which all ranks are in
        self._host = torch.empty_like(vector, device="cpu", pin_memory=True) if through_host else None

    def send(self, vector: Tensor, receiver: int) -> None:
        """Until it is on its way and may be changed."""
        dist.send(vector if self._host is None else self._host.copy_(vector), receiver, group=self._group)

    def receive(self, vector: Tensor, sender: int | None) -> int:
        """Into `vector`, from that rank, or from whichever sends first; which it was."""
        found = dist.recv(vector if self._host is None else self._host, sender, group=self._group)
        if self._host is not None:
            vector.copy_(self._host)
        return found


def _wait(messages: list[dist.Work | None]) -> None:
    for message in messages:
        assert message is not None  # None is for ranks outside the group
        message.wait()
