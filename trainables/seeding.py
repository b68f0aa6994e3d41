"""Random state of a process: the generators of Python, NumPy and PyTorch's CPU."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

import numpy as np
import torch


def seed_all(seed: int) -> None:
    """Seed all three generators; `seed`: 0 to 2**32 - 1."""
    random.seed(seed)
    np.random.seed(seed)
    torch.default_generator.manual_seed(seed)


@contextlib.contextmanager
def own_random_state(seed: int) -> Iterator[None]:
    """Seed the generators for a while; afterwards they go on as if nothing had been drawn."""
    states = random.getstate(), np.random.get_state(), torch.random.get_rng_state()
    seed_all(seed)
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.random.set_rng_state(states[2])
