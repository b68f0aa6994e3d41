"""Sizes of the GPU benchmark: the real ones, and tiny ones to test it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainables.contract import Data


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes of all measurements; the first batch size is the default one."""

    fixed: Mapping[str, Any]  # settings of each configuration, beside those that are compared
    batches: Sequence[int]
    workers: Sequence[int]
    probe_seconds: float  # at most, and a second more; a rate that has settled ends a probe earlier
    turn_seconds: float
    repeats: int
    training: Mapping[str, Any]  # settings
    trainings: int  # with seeds of their own
    epochs: int
    train_images: int | None = None
    val_images: int = Data.val_images


FULL = Sizes(
    fixed={},
    batches=(128, 256, 512, 1024, 2048),
    workers=(0, 1, 2, 4, 8),
    probe_seconds=4.0,
    turn_seconds=1.5,
    repeats=5,
    training={
        "batch_size": 512,
        "learning_rate": 0.3,
        "weight_decay": 0.0005,
        "crop_padding": 4,
        "loader": "device",
        "cuda_graphs": True,
    },
    trainings=3,
    epochs=50,
)
SMALL = Sizes(
    fixed={"width": 0.01},
    batches=(8, 16),
    workers=(0, 1),
    probe_seconds=1.0,
    turn_seconds=0.1,
    repeats=2,
    training={"batch_size": 16, "weight_decay": 0.0005, "loader": "device"},
    trainings=2,
    epochs=2,
    train_images=64,
    val_images=40,
)
