"""Arithmetic of a GPU with which the losses of two trainings can be compared."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch


@contextlib.contextmanager
def exact_arithmetic() -> Iterator[None]:
    """Turn TF32 off, and let each kernel of cuDNN add in the same order each time."""
    wanted: list[tuple[Any, str, bool]] = [
        (torch.backends.cuda.matmul, "allow_tf32", False),
        (torch.backends.cudnn, "allow_tf32", False),
        (torch.backends.cudnn, "deterministic", True),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in wanted]
    for owner, name, value in wanted:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)
