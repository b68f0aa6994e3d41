"""Ring all-reduce: each rank sends only to the next one, and the amount does not grow with the number of ranks.

The vector is cut into N chunks, one per rank. Reduce-scatter: in each of N - 1 hops a rank sends a chunk, to which the
next one adds its own; then each rank has one chunk summed over all ranks. All-gather: in N - 1 more hops the summed
chunks go around. Each rank sends 2 (N - 1) / N of the vector, which is the minimum (Patarasuk and Yuan 2009,
doi:10.1016/j.jpdc.2008.09.002). Introduced to deep learning by Baidu (Gibiansky 2017) and Horovod (arXiv:1802.05799);
NCCL's rings work the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch.distributed as dist
from torch import Tensor


class Hop(NamedTuple):
    """Transfers of one rank while all ranks send a chunk to the next."""

    sent: int  # chunk for the next rank
    received: int  # chunk from the previous rank
    adds: bool  # to the local chunk; otherwise it replaces it


def hops(rank: int, world_size: int) -> Iterator[Hop]:
    """Yield the hops of this rank in order; none with a single rank."""
    for i in range(world_size - 1):
        yield Hop((rank - i) % world_size, (rank - i - 1) % world_size, adds=True)
    for i in range(world_size - 1):  # starts with the chunk that was finished here last
        yield Hop((rank - i + 1) % world_size, (rank - i) % world_size, adds=False)


def chunks(vector: Tensor, world_size: int) -> Sequence[Tensor]:
    """Return one view per rank; the first ones are one element longer if the length is not divisible."""
    return vector.tensor_split(world_size)


def all_reduce(vector: Tensor, arriving: Tensor) -> None:
    """Sum over the ranks in place, bit-identical on all of them. `arriving` is a buffer for one chunk.

    All ranks call it for their vectors in the same order.
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    following, before = (rank + 1) % world_size, (rank - 1) % world_size
    mine = chunks(vector, world_size)
    for hop in hops(rank, world_size):
        chunk = mine[hop.received]
        room = arriving[: len(chunk)] if hop.adds else chunk
        both = [dist.P2POp(dist.isend, mine[hop.sent], following), dist.P2POp(dist.irecv, room, before)]
        for message in dist.batch_isend_irecv(both):  # batched: a single NCCL send would wait for its receive
            message.wait()
        if hop.adds:
            chunk += room
