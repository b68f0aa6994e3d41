"""Communication between the processes of a trial; with a single process nothing is sent."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from statistics import fmean
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import _get_default_store

from trainables.contract import InfeasibleError, waiting

Reduction = Literal["sum", "mean", "min", "max"]
LONGEST_PREPARATION = timedelta(hours=1)


@contextlib.contextmanager
def group(world_size: int | None, device: torch.device) -> Iterator[None]:
    """Process group of one process where `world_size` is 1, so that a strategy runs as with several."""
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


def local_rank(rank: int) -> int:
    """Return the number of this process on its node; `rank`, that of all nodes, where nobody says."""
    return int(os.environ.get("LOCAL_RANK", rank))


def meet(world_size: int) -> None:
    """Wait until all ranks have called it, longer than a collective operation would wait.

    A rank on its own node may have to read pictures or time kernels that the others have in their caches.

    Raises:
        torch.distributed.DistStoreError: a rank has not arrived after an hour.
    """
    if world_size == 1:
        return
    store = _get_default_store()
    arrived = store.add("arrived", 1)
    meeting = f"meeting {(arrived - 1) // world_size}"  # a group meets more than once
    if arrived % world_size == 0:
        store.set(meeting, "all are here")
    with waiting():
        store.wait([meeting], LONGEST_PREPARATION)


def answer_of_rank_0(mine: bool, rank: int, world_size: int) -> bool:
    """Return the answer of rank 0; the other ranks, which ask equally often, wait for it without taking a core.

    Raises:
        torch.distributed.DistStoreError: it has not answered after an hour.
    """
    if world_size == 1:
        return mine
    store = _get_default_store()
    key = f"answer {store.add(f'asked by {rank}', 1)}"  # a group asks in one task after another
    if rank == 0:
        store.set(key, f"{mine}")
        return mine
    with waiting():
        store.wait([key], LONGEST_PREPARATION)
    return bool(store.get(key) == b"True")


def summed(values: Tensor, world_size: int) -> Tensor:
    """Return the elementwise sums over the ranks."""
    if world_size > 1:
        values = values.clone()
        dist.all_reduce(values)
    return values


def reduced(values: Sequence[float], reduction: Reduction, world_size: int, device: torch.device) -> list[float]:
    """Reduce each of the values over the ranks, which all have equally many."""
    if world_size == 1:
        return list(values)
    tensor = torch.tensor(values, dtype=torch.float64, device=device)
    dist.all_reduce(tensor, op={"min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX}.get(reduction, dist.ReduceOp.SUM))
    result: list[float] = (tensor / world_size if reduction == "mean" else tensor).tolist()
    return result


def interleaved(rows: Tensor, rank: int, world_size: int) -> Tensor:
    """Return the rows of all ranks: the first one of each rank, the second one of each, and so on.

    The ranks may have different numbers of rows, shape (rows, 2); a row of zeros counts as none.
    """
    if world_size == 1:
        return rows
    (most,) = reduced([len(rows)], "max", world_size, rows.device)
    places = rows.new_zeros(round(most), world_size, rows.shape[1])
    places[: len(rows), rank] = rows
    together = summed(places, world_size).flatten(0, 1)
    return together[together.any(dim=1)]


def imbalance(values: Sequence[float], world_size: int, device: torch.device) -> float:
    """Return maximum / mean over the equally many values of all ranks; NaN if unknown or there is one value."""
    most, mean = (max(values), fmean(values)) if values else (math.nan, math.nan)
    (most,) = reduced([most], "max", world_size, device)
    (mean,) = reduced([mean], "mean", world_size, device)
    return most / mean if mean and len(values) * world_size > 1 else math.nan


def flattened(tensors: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Return a vector of zeros with room for all tensors, and for each a view of it with its shape and strides.

    One message sends them all. The tensors are dense and on one device.

    Raises:
        InfeasibleError: they are of several types.
    """
    if len(types := {str(tensor.dtype).removeprefix("torch.") for tensor in tensors}) > 1:
        raise InfeasibleError(f"weights of several types: {', '.join(sorted(types))}; this strategy sends one type")
    sizes = [tensor.numel() for tensor in tensors]
    vector = tensors[0].detach().new_zeros(sum(sizes))
    parts = zip(torch.split(vector, sizes), tensors, strict=True)
    return vector, [part.as_strided(tensor.shape, tensor.stride()) for part, tensor in parts]


def bucket_groups(tensors: Iterable[Tensor], bucket_bytes: int) -> Iterator[list[Tensor]]:
    """Divide the tensors, in their order, into groups of at least so many bytes; the last may have fewer."""
    group: list[Tensor] = []
    for tensor in tensors:
        group.append(tensor)
        if sum(each.nbytes for each in group) >= bucket_bytes:
            yield group
            group = []
    if group:
        yield group
