"""All-reduce around a ring: each rank sends to the next one only, and no more of it the more ranks there are.

The vector is cut into as many chunks as there are ranks, N. Reduce-scatter: in each of N - 1 hops a rank passes a chunk
on, to which the next one adds its own; then every rank has one chunk that is the sum over all of them. All-gather: in
N - 1 more hops the finished chunks go around. Each rank has sent 2 (N - 1) / N of the vector, the least that will do
(Patarasuk and Yuan 2009, doi:10.1016/j.jpdc.2008.09.002). Brought to deep learning by Baidu (Gibiansky 2017), then by
Horovod (arXiv:1802.05799); NCCL's rings are these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch.distributed as dist
from torch import Tensor


class Hop(NamedTuple):
    """What one rank does while all of them pass a chunk to the next."""

    sent: int  # the chunk that goes to the next rank
    received: int  # the chunk that comes from the one before
    adds: bool  # to what is here; otherwise it takes its place


def hops(rank: int, world_size: int) -> Iterator[Hop]:
    """Those of this rank, in order: none where it is alone."""
    for i in range(world_size - 1):
        yield Hop((rank - i) % world_size, (rank - i - 1) % world_size, adds=True)
    for i in range(world_size - 1):  # the first one sent is the one just finished here
        yield Hop((rank - i + 1) % world_size, (rank - i) % world_size, adds=False)


def chunks(vector: Tensor, world_size: int) -> Sequence[Tensor]:
    """Views of it, as many as there are ranks; the first ones an element longer where it does not come out even."""
    return vector.tensor_split(world_size)


def all_reduce(vector: Tensor, arriving: Tensor) -> None:
    """The sum over the ranks, in place; the same bits on all of them. `arriving` has room for a chunk.

    All ranks call it, for their vectors in the same order.
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    following, before = (rank + 1) % world_size, (rank - 1) % world_size
    mine = chunks(vector, world_size)
    for hop in hops(rank, world_size):
        chunk = mine[hop.received]
        room = arriving[: len(chunk)] if hop.adds else chunk
        both = [dist.P2POp(dist.isend, mine[hop.sent], following), dist.P2POp(dist.irecv, room, before)]
        for message in dist.batch_isend_irecv(both):  # together: NCCL would wait for the other half of a lone one
            message.wait()
        if hop.adds:
            chunk += room
