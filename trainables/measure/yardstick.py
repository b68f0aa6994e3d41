"""A small training step that is always the same, timed between windows: what rates drift by here shows in it.

Trials of a search rarely repeat each other, so their own rates do not tell what a repeat would differ by. Nor does a
matrix product in the cache: it saw half of the drift, with a correlation of 0.8 to the rate over blocks of 4 s. This
saw all of it, with 0.95 (results/LOG.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from trainables.network.vgg import vgg19

WIDTH, BATCH_SIZE = 0.125, 8  # 12 ms on 2 cores of Zen 4
WARMUP_CALLS = 3


class Yardstick:
    """Called, it trains a step of a small VGG19 in fp32 on all threads and tells the seconds. Nothing is learned."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        with torch.random.fork_rng(devices=[]):  # the trial's random numbers stay what they were
            torch.manual_seed(0)
            self._model = vgg19(width=WIDTH)
            self._images = torch.rand(BATCH_SIZE, 3, 32, 32)
        for _ in range(WARMUP_CALLS):
            self()

    def __call__(self) -> float:
        """Seconds of this step."""
        started = self._clock()
        with torch.enable_grad(), torch.autocast("cpu", enabled=False):
            self._model(self._images).square().mean().backward()
        seconds = self._clock() - started
        self._model.zero_grad()
        return seconds
