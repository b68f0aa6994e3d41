"""Parameter server: rank 0 keeps the weights and the optimizer, the other ranks compute gradients.

`server: synchronous`: the server waits for the gradients of all workers, updates once, and sends the weights to all.

`server: asynchronous`: a worker sends its gradient and receives the newest weights without waiting for other workers;
the server applies each gradient on arrival (Dean et al. 2012, Downpour SGD; Li et al. 2014, OSDI). A step has as many
updates as workers. Each update scales its gradient by the number of workers, as if it were the whole batch's, and
divides the learning rate by that number, so that one step changes and decays the weights as much as one update would.
The staleness of a gradient is the number of updates between reading the weights and applying the gradient.

Batch normalisation sees each worker's share only; the running statistics are the first worker's.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import cache
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainables.contract import InfeasibleError, timeout_seconds
from trainables.parallel.ranks import flattened
from trainables.sample_shape import SampleShape
from trainables.settings import Settings
from trainables.stages import Timeline
from trainables.step import Step

SERVER, FIRST_WORKER = 0, 1


def build(model: nn.Module, settings: Settings, shape: SampleShape, device: torch.device) -> Step:
    """Return this rank's step. Needs `torch.distributed` initialised.

    Raises:
        InfeasibleError: there is no rank besides the server.
    """
    if dist.get_world_size() < 2:
        raise InfeasibleError("strategy parameter_server needs at least 2 processes: a server and a worker")
    if dist.get_rank() != SERVER:
        return _Worker(model, settings, device)
    return (_Asynchronous if settings.server == "asynchronous" else _Synchronous)(model, settings, device)


class _Node(Step):
    """Base of all ranks: the weights in one vector and the gradients in another, so that each is one message.

    Frozen weights are in neither: they stay equal on all ranks.
    """

    def __init__(self, model: nn.Module, settings: Settings, device: torch.device) -> None:
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._weights, weights = flattened(parameters)
        self._gradients, gradients = flattened(parameters)
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
    """Worker that computes gradients; its own optimizer is not used."""

    def __call__(self, inputs: Any, targets: Any, timeline: Timeline) -> Tensor:
        self._gradients.zero_()
        loss = self._add_gradients(inputs, targets, timeline)
        self._post.send(self._gradients, SERVER)
        self._post.receive(self._weights, SERVER)
        timeline.mark("communicate")
        return loss

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict({**state, "optimizer": {}})


class _Synchronous(_Node):
    """Server that updates when all gradients of a step have arrived."""

    def __init__(self, model: nn.Module, settings: Settings, device: torch.device) -> None:
        super().__init__(model, settings, device)
        self._workers = range(FIRST_WORKER, dist.get_world_size())
        self._arriving = [torch.empty_like(self._gradients) for _ in self._workers]

    def __call__(self, inputs: Any, targets: Any, timeline: Timeline) -> Tensor:
        _wait([dist.irecv(room, worker) for room, worker in zip(self._arriving, self._workers, strict=True)])
        timeline.mark("communicate")
        torch.sum(torch.stack(self._arriving), dim=0, out=self._gradients)  # in the order of the ranks
        self._update(timeline)
        _wait([dist.isend(self._weights, worker) for worker in self._workers])
        timeline.mark("communicate")
        return self._weights.new_zeros(())


class _Asynchronous(_Node):
    """Server that applies each gradient on arrival. Its step ends after as many gradients as there are workers.

    So all ranks have the same number of steps at the end of an epoch, with no message in flight.
    """

    def __init__(self, model: nn.Module, settings: Settings, device: torch.device) -> None:
        super().__init__(model, settings, device)
        self._num_workers = dist.get_world_size() - 1
        self._staleness = Staleness()

    def __call__(self, inputs: Any, targets: Any, timeline: Timeline) -> Tensor:
        for _ in range(self._num_workers):
            worker = self._post.receive(self._gradients, None)
            timeline.mark("communicate")
            self._gradients *= self._num_workers
            self._update(timeline)
            self._staleness.update(worker)
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
    """Statistics of gradient staleness, in updates between a worker's reading of the weights and its own update."""

    def __init__(self) -> None:
        self._updates = self._sum = self._most = 0
        self._read: dict[int, int] = {}  # by worker: number of updates when it read the weights
        self._read_by_all = 0

    def update(self, worker: int) -> None:
        """Count an update with this worker's gradient; the worker then reads the weights."""
        staleness = self._updates - self._read.get(worker, self._read_by_all)
        self._sum, self._most = self._sum + staleness, max(self._most, staleness)
        self._updates += 1
        self._read[worker] = self._updates

    def all_read(self) -> None:
        """Note that all workers have read the newest weights."""
        self._read_by_all = self._updates
        self._read.clear()

    def metrics(self) -> dict[str, float]:
        """Return mean and maximum over all updates so far; empty before the first one."""
        if not self._updates:
            return {}
        return {"gradient_staleness_mean": self._sum / self._updates, "gradient_staleness_max": float(self._most)}


@cache
def _gloo_group(world: dist.ProcessGroup | None) -> dist.ProcessGroup:
    """Return Gloo's group of all ranks of `world`: one for all trials, because each keeps threads and files open."""
    timeout = timedelta(seconds=timeout_seconds())
    return cast(dist.ProcessGroup, dist.new_group(timeout=timeout, backend="gloo"))


class _Post:
    """Sender and receiver of vectors like `vector`, one at a time.

    Only Gloo can receive from any sender; on a GPU such messages therefore go `through_host`.
    """

    def __init__(self, vector: Tensor, *, through_host: bool) -> None:
        self._group = _gloo_group(dist.group.WORLD) if through_host else None
        self._host = torch.empty_like(vector, device="cpu", pin_memory=True) if through_host else None

    def send(self, vector: Tensor, receiver: int) -> None:
        """Send the vector; it may be changed afterwards."""
        dist.send(vector if self._host is None else self._host.copy_(vector), receiver, group=self._group)

    def receive(self, vector: Tensor, sender: int | None) -> int:
        """Receive into `vector` from a rank, None: from whichever sends first; return the sender."""
        found = dist.recv(vector if self._host is None else self._host, sender, group=self._group)
        if self._host is not None:
            vector.copy_(self._host)
        return found


def _wait(messages: list[dist.Work | None]) -> None:
    for message in messages:
        assert message is not None  # None only for ranks outside the group
        message.wait()
