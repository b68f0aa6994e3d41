"""The whole training step as one CUDA graph: launched at once, with no Python between its kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from trainables.contract import InfeasibleError
from trainables.settings import Settings
from trainables.stages import Timeline
from trainables.step import Step

WARMUP_STEPS = 3  # kernels are chosen and buffers made before the capture; these steps train as all others


class CapturedStep(Step):
    """The plain step, captured once and replayed. Profiled steps are run kernel by kernel."""

    def __init__(self, model: nn.Module, forward: nn.Module, settings: Settings, device: torch.device) -> None:
        if not settings.fused_optimizer:
            raise InfeasibleError("cuda_graphs: needs fused_optimizer, the other ones wait for the device")
        super().__init__(model, forward, settings, device)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._eager_steps = 0

    def __call__(self, images: Tensor, labels: Tensor, timeline: Timeline) -> Tensor:
        """The mean loss, detached, on the device."""
        if timeline.on:
            return super().__call__(images, labels, timeline)
        if self._eager_steps < WARMUP_STEPS:
            self._eager_steps += 1
            return self._aside(images, labels, timeline)
        if self._graph is None:
            self._capture(images, labels, timeline)
        assert self._graph is not None
        self._images.copy_(images)
        self._labels.copy_(labels)
        self._graph.replay()
        return self._loss.clone()

    def set_learning_rate(self, value: float) -> None:
        """For the steps that follow, captured or not."""
        for group in self._optimizer.param_groups:
            group["lr"].fill_(value)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there; before the first step only."""
        assert self._graph is None
        super().load_state_dict(state)
        for group in self._optimizer.param_groups:
            group["lr"] = torch.as_tensor(group["lr"]).to(self._device)

    def _aside(self, images: Tensor, labels: Tensor, timeline: Timeline) -> Tensor:
        """On a stream of its own: a capture must not meet work that was begun on the default one."""
        stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            loss = super().__call__(images, labels, timeline)
        torch.cuda.current_stream(self._device).wait_stream(stream)
        return loss

    def _capture(self, images: Tensor, labels: Tensor, timeline: Timeline) -> None:
        self._images, self._labels = images.clone(), labels.clone()
        self._optimizer.zero_grad(set_to_none=True)  # the gradients must lie in the graph's own memory
        self._graph = torch.cuda.CUDAGraph()
        # what other threads do meanwhile, such as pinning the next batch, is no part of it
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            self._loss = super().__call__(self._images, self._labels, timeline)
