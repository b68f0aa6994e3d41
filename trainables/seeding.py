"""Random state of a process: the generators of Python, NumPy and PyTorch."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

import numpy as np
import torch


def seed_all(seed: int) -> None:
    """Seed the generators of the CPU; `seed`: 0 to 2**32 - 1. GPUs are left alone: a loader process has none."""
    random.seed(seed)
    np.random.seed(seed)
    torch.default_generator.manual_seed(seed)


def seed_process(seed: int) -> None:
    """Seed the generators of the CPU and of the GPUs; `seed`: any whole number."""
    seed_all(seed % 2**32)
    torch.manual_seed(seed)


@contextlib.contextmanager
def restored_random_state() -> Iterator[None]:
    """Afterwards the generators of the CPU go on as if nothing had been drawn meanwhile."""
    states = random.getstate(), np.random.get_state(), torch.random.get_rng_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.random.set_rng_state(states[2])
