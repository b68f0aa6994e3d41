"""Ring all-reduce written out: what DDP, Horovod and NCCL do, with nothing hidden. A process per device.

Gradients are gathered in buckets in the order in which the backward pass gives them, the last layer's first. As soon
as a bucket is full its ring starts (`trainables.parallel.ring`), while the gradients of the layers before are still
computed. Batch normalisation is as in `ddp`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainables.parallel import ring
from trainables.parallel.flat import side_by_side
from trainables.pictures.loaders import Share
from trainables.settings import Settings
from trainables.stages import Timeline
from trainables.step import Step

BUCKET_BYTES = 4 * 2**20


def share(rank: int, world_size: int) -> Share:
    """Each its own."""
    return Share(rank, world_size)


def build(model: nn.Module, settings: Settings, device: torch.device) -> Step:
    """The plain step with gradients summed over the ranks. `torch.distributed` is initialised."""
    return _RingStep(model, settings, device)


class _RingStep(Step):
    def __init__(self, model: nn.Module, settings: Settings, device: torch.device) -> None:
        super().__init__(model, model, settings, device)
        self._rings = _Rings(list(model.parameters()), device)

    def _backward(self, loss: Tensor, timeline: Timeline) -> None:
        """What is left to travel after the last gradient is communication."""
        torch.autograd.backward(loss)
        timeline.mark("backward")
        self._rings.finish()
        timeline.mark("communicate")

    def gather(self) -> None:
        for buffer in self.model.buffers():
            dist.broadcast(buffer, src=0)


class _Bucket:
    """Gradients that travel together: so many, in one vector."""

    def __init__(self, vector: Tensor, count: int) -> None:
        self.vector, self.count = vector, count
        self.missing = count


def _together(parameters: Iterable[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    """In this order, as few in each list as fill a bucket."""
    some: list[nn.Parameter] = []
    for parameter in parameters:
        some.append(parameter)
        if sum(each.nbytes for each in some) >= BUCKET_BYTES:
            yield some
            some = []
    if some:
        yield some


class _Rings:
    """One ring after another, beside the backward pass: in a thread on a CPU, in a stream of its own on a GPU.

    The order is that of the buckets on all ranks, whichever is full first. No parameter is held here, only places for
    gradients: a network that holds these hooks is freed as any other.
    """

    def __init__(self, parameters: list[nn.Parameter], device: torch.device) -> None:
        world_size = dist.get_world_size()
        self._buckets: list[_Bucket] = []
        for together in _together(reversed(parameters)):
            vector, places = side_by_side(together)
            self._buckets.append(bucket := _Bucket(vector, len(places)))
            for parameter, place in zip(together, places, strict=True):
                arrived = partial(self._arrived, bucket, place)
                parameter.register_post_accumulate_grad_hook(arrived)  # type: ignore[no-untyped-call]
        longest = max(len(ring.chunks(bucket.vector, world_size)[0]) for bucket in self._buckets)
        self._arriving = self._buckets[0].vector.new_empty(longest)
        self._started: list[_Bucket] = []
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ring")
        self._running: list[Future[None]] = []

    def _arrived(self, bucket: _Bucket, place: Tensor, parameter: nn.Parameter) -> None:
        """A gradient is there: it moves to its place, and every bucket that is now full and has its turn starts."""
        assert parameter.grad is not None
        parameter.grad = place.copy_(parameter.grad)
        bucket.missing -= 1
        while len(self._started) < len(self._buckets):
            following = self._buckets[len(self._started)]
            if following.missing:
                return
            self._started.append(following)
            self._start(following.vector)

    def _start(self, vector: Tensor) -> None:
        if self._stream is None:
            self._running.append(self._thread.submit(ring.all_reduce, vector, self._arriving))
            return
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):  # where a message's `wait` makes the stream wait, not the host
            ring.all_reduce(vector, self._arriving)

    def finish(self) -> None:
        """Wait for the sums: this thread, or what follows on the device. What failed in a ring is raised here."""
        if self._stream is not None:
            torch.cuda.current_stream().wait_stream(self._stream)
        for running in self._running:
            running.result()
        self._running.clear()
        self._started.clear()
        for bucket in self._buckets:
            bucket.missing = bucket.count
