"""Evaluation batches from loader processes: each sample once, in order."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from trainables.plan import Batch, Batches, Indices, Plan
from trainables.stages import Timeline


def evaluated_in_order(
    indices: Indices, batch_size: int, device: torch.device, create: Callable[[Plan], Batches]
) -> Iterator[Batch]:
    """Create the batches of these samples, and return an iterator over them that closes them at its end.

    They are created at once: the ranks wait for each other's data before the first batch.
    """
    if not len(indices):
        return iter(())
    return _only_epoch(create(Plan(indices, min(len(indices), batch_size), seed=0)), device)


def choices_in_order(plan: Plan, epoch: int, choice: Callable[[int], Any]) -> Iterator[list[Any]]:
    """Yield the choice for each sample, batch by batch; the last batch may be smaller."""
    for start in range(0, len(plan.indices), plan.batch_size):
        yield [choice(index) for index in plan.indices[start : start + plan.batch_size].tolist()]


def _only_epoch(batches: Batches, device: torch.device) -> Iterator[Batch]:
    with contextlib.closing(batches):
        yield from batches.epoch(0, Timeline(device))
