"""What the processes of a trial tell each other. One process alone knows everything already."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from datetime import timedelta
from statistics import fmean

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import _get_default_store

from trainables.contract import waiting

LONGEST_PREPARATION = timedelta(hours=1)


@contextlib.contextmanager
def group(world_size: int | None, device: torch.device) -> Iterator[None]:
    """A process group also where `world_size` asks for one of a single process: the strategy works as with several."""
    if world_size != 1 or dist.is_initialized():
        yield
        return
    backend = "nccl" if device.type == "cuda" else "gloo"
    store = dist.HashStore()  # type: ignore[attr-defined]
    dist.init_process_group(backend, store=store, rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def meet(world_size: int) -> None:
    """Return once all ranks are here, however long what each does by itself before takes.

    On a node of its own, one may have pictures to read or kernels to time that others have in their caches: longer than
    collective operations are waited for.

    Raises:
        torch.distributed.DistStoreError: some rank is not here after an hour.
    """
    if world_size == 1:
        return
    store = _get_default_store()
    arrived = store.add("arrived", 1)
    meeting = f"meeting {(arrived - 1) // world_size}"  # a group of processes meets more than once
    if arrived % world_size == 0:
        store.set(meeting, "all are here")
    with waiting():
        store.wait([meeting], LONGEST_PREPARATION)


def summed(values: Tensor, world_size: int) -> Tensor:
    """The sums over the ranks, element by element, on all of them."""
    if world_size > 1:
        values = values.clone()
        dist.all_reduce(values)
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


def imbalance(values: Sequence[float], world_size: int, device: torch.device) -> float:
    """The largest by the mean of all, over the ranks, each of which has as many; NaN: unknown, or just one."""
    most, mean = (max(values), fmean(values)) if values else (math.nan, math.nan)
    (most,), (mean,) = largest([most], world_size, device), mean_of([mean], world_size, device)
    return most / mean if mean and len(values) * world_size > 1 else math.nan


def _reduced(
    values: Sequence[float], world_size: int, device: torch.device, operation: dist.ReduceOp.RedOpType
) -> list[float]:
    if world_size == 1:
        return list(values)
    tensor = torch.tensor(values, dtype=torch.float64, device=device)
    dist.all_reduce(tensor, op=operation)
    result: list[float] = tensor.tolist()
    return result
