"""Training step as one CUDA graph, without Python between its kernels."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from trainables.contract import InfeasibleError
from trainables.settings import Settings
from trainables.stages import Timeline
from trainables.step import Step
from trainables.strategy_table import STRATEGIES

log = logging.getLogger(__name__)


def capture_stream(device: torch.device) -> torch.cuda.Stream:
    """Return a stream for a captured step; the default stream has work on which a capture must not depend."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


class CapturedStep(Step):
    """Plain step, captured once and replayed. Profiled steps run kernel by kernel.

    All of them run on one stream, because memory freed on one stream is not reused on another. The graph's memory is
    its own: a profiled step takes as much again. With `cuda_graphs: auto`, a step that cannot be captured runs kernel
    by kernel.
    """

    def __init__(
        self,
        model: nn.Module,
        forward: nn.Module,
        settings: Settings,
        device: torch.device,
        stream: torch.cuda.Stream | None = None,
    ) -> None:
        if not settings.fused_optimizer:
            raise InfeasibleError("cuda_graphs: needs fused_optimizer; other optimizers wait for the device")
        if settings.accumulation_steps > 1:
            raise InfeasibleError("cuda_graphs: not with accumulation_steps, between which DDP does not communicate")
        super().__init__(model, forward, settings, device)
        self._stream = stream or capture_stream(device)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._eager_steps_left: float = STRATEGIES[settings.strategy].eager_steps  # they train too

    def __call__(self, inputs: Any, targets: Any, timeline: Timeline) -> Tensor:
        """Train on a batch; return its mean loss, detached, on the device."""
        if self._graph is None and self._eager_steps_left <= 0 and not timeline.on:
            self._capture(inputs, targets, timeline)
        if self._graph is None or timeline.on:
            self._eager_steps_left -= 1
            return self._eager(inputs, targets, timeline)
        places = tree_leaves((self._inputs, self._targets))
        for place, value in zip(places, tree_leaves((inputs, targets)), strict=True):
            if place.shape != value.shape:
                shapes = f"{tuple(place.shape)} and {tuple(value.shape)}"
                raise InfeasibleError(f"cuda_graphs: batches differ in shape, {shapes}; choose cuda_graphs false")
            place.copy_(value)
        self._graph.replay()
        return self._loss.clone()

    def set_learning_rate(self, value: float) -> None:
        """Set the learning rate of the following steps, captured or not."""
        for group in self._optimizer.param_groups:
            group["lr"].fill_(value)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state; only before the first step."""
        assert self._graph is None
        super().load_state_dict(state)
        for group in self._optimizer.param_groups:
            group["lr"] = torch.as_tensor(group["lr"]).to(self._device)

    def _eager(self, inputs: Any, targets: Any, timeline: Timeline) -> Tensor:
        """Run a step kernel by kernel on the stream of the capture."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            loss = super().__call__(inputs, targets, timeline)
        torch.cuda.current_stream(self._device).wait_stream(self._stream)
        return loss

    def _capture(self, inputs: Any, targets: Any, timeline: Timeline) -> None:
        """Capture a step; none of its work is done. With `auto`, an error leaves the step without a graph."""
        self._inputs, self._targets = tree_map(torch.clone, (inputs, targets))
        self._optimizer.zero_grad(set_to_none=True)  # gradients must be in the graph's own memory
        random_state = torch.cuda.get_rng_state(self._device)
        graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
        try:
            # thread_local: other threads may use CUDA meanwhile, for instance to pin the next batch
            with torch.cuda.graph(graph, pool, self._stream, capture_error_mode="thread_local"):
                self._loss = super().__call__(self._inputs, self._targets, timeline)
            self._graph = graph
        except RuntimeError as error:
            del graph
            self._abandon_capture(pool, random_state)
            if self._settings.cuda_graphs != "auto":
                raise
            first = error.__context__ or error  # the end of the capture raises another one
            log.warning("cuda_graphs auto: off, the step cannot be captured: %s", f"{first}".partition("\n")[0])
            self._eager_steps_left = math.inf

    def _abandon_capture(self, pool: Any, random_state: Tensor) -> None:
        """Undo what PyTorch leaves as it was during a capture that has failed."""
        del self._inputs, self._targets
        self._optimizer.zero_grad(set_to_none=True)
        index = self._device.index or 0
        with contextlib.suppress(RuntimeError):  # the capture has been ended properly
            torch._C._cuda_endAllocateToPool(index, pool)
            torch._C._cuda_releasePool(index, pool)
        generator = torch.cuda.default_generators[index]
        generator.graphsafe_set_state(torch.Generator(self._device).graphsafe_get_state())
        generator.set_state(random_state)
