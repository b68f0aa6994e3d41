"""Ring all-reduce in plain Python: the algorithm of DDP, Horovod and NCCL. One process per device.

Gradients are collected in buckets in the order of the backward pass, the last layer's first. The all-reduce of a full
bucket (`trainables.parallel.ring`) runs while the gradients of earlier layers are computed. Batch normalisation works
as in `ddp`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainables.contract import InfeasibleError
from trainables.parallel import ring
from trainables.parallel.ranks import bucket_groups, flattened
from trainables.sample_shape import SampleShape
from trainables.settings import Settings
from trainables.stages import Timeline
from trainables.step import Step
from trainables.strategy_table import STRATEGIES

BUCKET_BYTES = STRATEGIES["ring_allreduce"].bucket_bytes


def build(model: nn.Module, settings: Settings, shape: SampleShape, device: torch.device) -> Step:
    """Return the step that sums gradients over the ranks. Needs `torch.distributed` initialised."""
    return _RingStep(model, settings, device)


class _RingStep(Step):
    def __init__(self, model: nn.Module, settings: Settings, device: torch.device) -> None:
        super().__init__(model, model, settings, device)
        self._rings = _Rings([p for p in model.parameters() if p.requires_grad], device)

    @contextlib.contextmanager
    def _unsynchronised(self) -> Iterator[None]:
        self._rings.paused = True
        try:
            yield
        finally:
            self._rings.paused = False

    def _backward(self, loss: Tensor, timeline: Timeline) -> None:
        torch.autograd.backward(loss)
        timeline.mark("backward")
        if not self._rings.paused:
            self._rings.finish()
            timeline.mark("communicate")


class _Bucket:
    """Vector of `count` gradients that are sent together."""

    def __init__(self, vector: Tensor, count: int) -> None:
        self.vector, self.count = vector, count
        self.missing = count


class _Rings:
    """All-reduce of the buckets during the backward pass: in a thread on a CPU, in a separate stream on a GPU.

    The buckets are reduced in the same order on all ranks, whichever is full first. No parameter is referenced here,
    only memory for gradients, so that a network with these hooks can be freed.
    """

    def __init__(self, parameters: list[nn.Parameter], device: torch.device) -> None:
        world_size = dist.get_world_size()
        self._buckets: list[_Bucket] = []
        for group in bucket_groups(reversed(parameters), BUCKET_BYTES):
            vector, places = flattened(group)
            self._buckets.append(bucket := _Bucket(vector, len(places)))
            for parameter, place in zip(group, places, strict=True):
                arrived = partial(self._arrived, bucket, place)
                parameter.register_post_accumulate_grad_hook(arrived)  # type: ignore[no-untyped-call]
        longest = max(len(ring.chunks(bucket.vector, world_size)[0]) for bucket in self._buckets)
        self._arriving = self._buckets[0].vector.new_empty(longest)
        self._started: list[_Bucket] = []
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ring")
        self._running: list[Future[None]] = []
        self.paused = False  # gradients stay where they are

    def _arrived(self, bucket: _Bucket, place: Tensor, parameter: nn.Parameter) -> None:
        """Move a new gradient to its place in the bucket, then start the buckets that are full and next in order."""
        if self.paused:
            return
        assert parameter.grad is not None
        parameter.grad = place.copy_(parameter.grad)
        bucket.missing -= 1
        while len(self._started) < len(self._buckets):
            following = self._buckets[len(self._started)]
            if following.missing:
                return
            self._started.append(following)
            if self._stream is None:
                self._running.append(self._thread.submit(ring.all_reduce, following.vector, self._arriving))
                continue
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):  # here a message's `wait` blocks the stream, not the host
                ring.all_reduce(following.vector, self._arriving)

    def finish(self) -> None:
        """Wait for the sums, on a GPU in the stream; raise the error of an all-reduce that failed.

        Raises:
            InfeasibleError: a parameter had no part in the loss, so that its bucket was never full.
        """
        if unused := sum(bucket.missing for bucket in self._buckets):
            parameters = "1 parameter has" if unused == 1 else f"{unused} parameters have"
            raise InfeasibleError(f"strategy ring_allreduce: {parameters} no gradient; all must take part in the loss")
        if self._stream is not None:
            torch.cuda.current_stream().wait_stream(self._stream)
        for running in self._running:
            running.result()
        self._running.clear()
        self._started.clear()
        for bucket in self._buckets:
            bucket.missing = bucket.count
