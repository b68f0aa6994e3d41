"""What the processes of a trial tell each other. One process alone knows everything already."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor


def mean(values: Tensor, world_size: int) -> Tensor:
    """The mean over the ranks, element by element, on all of them."""
    if world_size > 1:
        values = values.clone()
        dist.all_reduce(values)
        values /= world_size
    return values


def total(values: Sequence[float], world_size: int, device: torch.device) -> list[float]:
    """The sums over the ranks, on all of them."""
    return _reduced(values, world_size, device, dist.ReduceOp.SUM)


def mean_of(values: Sequence[float], world_size: int, device: torch.device) -> list[float]:
    """The means over the ranks, on all of them."""
    return [value / world_size for value in total(values, world_size, device)]


def smallest(values: Sequence[float], world_size: int, device: torch.device) -> list[float]:
    """The minima over the ranks, on all of them."""
    return _reduced(values, world_size, device, dist.ReduceOp.MIN)


def largest(values: Sequence[float], world_size: int, device: torch.device) -> list[float]:
    """The maxima over the ranks, on all of them."""
    return _reduced(values, world_size, device, dist.ReduceOp.MAX)


def _reduced(
    values: Sequence[float], world_size: int, device: torch.device, operation: dist.ReduceOp.RedOpType
) -> list[float]:
    if world_size == 1:
        return list(values)
    tensor = torch.tensor(values, dtype=torch.float64, device=device)
    dist.all_reduce(tensor, op=operation)
    result: list[float] = tensor.tolist()
    return result
