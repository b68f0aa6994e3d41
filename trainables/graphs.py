"""Training step as one CUDA graph, without Python between its kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from trainables.contract import InfeasibleError
from trainables.settings import Settings
from trainables.stages import Timeline
from trainables.step import Step

WARMUP_STEPS = 3  # choose kernels and allocate buffers before the capture; these steps train too


class CapturedStep(Step):
    """Plain step, captured once and replayed. Profiled steps run kernel by kernel.

    All of them run on one stream, because memory freed on one stream is not reused on another. The graph's memory is
    its own: a profiled step takes as much again.
    """

    def __init__(self, model: nn.Module, forward: nn.Module, settings: Settings, device: torch.device) -> None:
        if not settings.fused_optimizer:
            raise InfeasibleError("cuda_graphs: needs fused_optimizer; other optimizers wait for the device")
        super().__init__(model, forward, settings, device)
        # not the default stream: a capture must not depend on its work
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._graph: torch.cuda.CUDAGraph | None = None
        self._eager_steps = 0

    def __call__(self, inputs: Any, targets: Any, timeline: Timeline) -> Tensor:
        """Train on a batch; return its mean loss, detached, on the device."""
        if timeline.on:
            return self._eager(inputs, targets, timeline)
        if self._eager_steps < WARMUP_STEPS:
            self._eager_steps += 1
            return self._eager(inputs, targets, timeline)
        if self._graph is None:
            self._inputs, self._targets = tree_map(torch.clone, (inputs, targets))
            self._optimizer.zero_grad(set_to_none=True)  # gradients must be in the graph's own memory
            self._graph = torch.cuda.CUDAGraph()
            # thread_local: other threads may use CUDA meanwhile, for instance to pin the next batch
            with torch.cuda.graph(self._graph, stream=self._stream, capture_error_mode="thread_local"):
                self._loss = super().__call__(self._inputs, self._targets, timeline)
        places = tree_leaves((self._inputs, self._targets))
        for place, value in zip(places, tree_leaves((inputs, targets)), strict=True):
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
