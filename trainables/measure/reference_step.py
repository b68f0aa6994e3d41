"""Reference step: a small training step that is always the same, timed between windows to observe drift.

Trials of a search rarely repeat each other, so their own rates do not show drift. A matrix product in the cache does
not suffice: it showed half of the drift, with a correlation of 0.8 to the rate over blocks of 4 s. This step showed
all of it, with 0.95 (results/LOG.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from trainables.network.vgg import vgg

WIDTH, BATCH_SIZE = 0.125, 8  # 12 ms on 2 cores of Zen 4
WARMUP_CALLS = 3


class ReferenceStep:
    """Forward and backward pass of a small VGG19 in fp32 on all threads; the weights stay as they are."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        with torch.random.fork_rng(devices=[]):  # leaves the trial's random numbers as they were
            torch.manual_seed(0)
            self._model = vgg(width=WIDTH)
            self._images = torch.rand(BATCH_SIZE, 3, 32, 32)
        for _ in range(WARMUP_CALLS):
            self()

    def __call__(self) -> float:
        """Run one step and return its seconds."""
        started = self._clock()
        with torch.enable_grad(), torch.autocast("cpu", enabled=False):
            self._model(self._images).square().mean().backward()
        seconds = self._clock() - started
        self._model.zero_grad()
        return seconds
