"""The ring: its schedule against a plain sum, and its messages between processes."""

import pytest
import torch
from torch import Tensor

from tests.trainables.ranked import on_ranks
from trainables.parallel.ring import all_reduce, chunks, hops


def vectors(world_size: int, length: int) -> list[Tensor]:
    """Small whole numbers, which floats add without error in any order; other ones on each rank."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(-99, 99, (length,), generator=generator).float() for _ in range(world_size)]


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("length", [1, 5, 28, 100])
def test_after_all_hops_every_rank_has_the_sum(world_size: int, length: int) -> None:
    """In one process: in each hop all ranks send before any of them has received."""
    mine = vectors(world_size, length)
    expected = torch.stack(mine).sum(0)
    for hop_of in zip(*(hops(rank, world_size) for rank in range(world_size)), strict=True):
        sent = [chunks(mine[rank], world_size)[hop.sent].clone() for rank, hop in enumerate(hop_of)]
        for rank, hop in enumerate(hop_of):
            before = (rank - 1) % world_size
            assert hop.received == hop_of[before].sent
            chunk = chunks(mine[rank], world_size)[hop.received]
            chunk.copy_(chunk + sent[before] if hop.adds else sent[before])
    for vector in mine:
        assert vector.equal(expected)


@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
def test_a_rank_sends_twice_the_vector_less_two_chunks(world_size: int) -> None:
    """2 (N - 1) / N of it: what any all-reduce must send at least."""
    pieces = chunks(torch.zeros(8 * 3 * world_size), world_size)
    for rank in range(world_size):
        sent = sum(len(pieces[hop.sent]) for hop in hops(rank, world_size))
        assert sent == 8 * 3 * world_size * 2 * (world_size - 1) / world_size


def reduced(rank: int, world_size: int, lengths: tuple[int, ...]) -> list[Tensor]:
    mine = [vectors(world_size, length)[rank] for length in lengths]
    for vector in mine:
        all_reduce(vector, torch.empty(len(vector)))
    return mine


@pytest.mark.parametrize(("world_size", "lengths"), [(2, (1, 1001)), (3, (2, 1000))])
def test_between_processes_it_is_the_sum_too(world_size: int, lengths: tuple[int, ...]) -> None:
    expected = [torch.stack(vectors(world_size, length)).sum(0) for length in lengths]
    for found in on_ranks(reduced, world_size, lengths):
        assert all(map(torch.equal, found, expected))


def rounded(rank: int, world_size: int) -> Tensor:
    vector = torch.randn(1000, generator=torch.Generator().manual_seed(rank))
    all_reduce(vector, torch.empty(1000))
    return vector


def test_what_rounding_does_is_the_same_on_all_ranks() -> None:
    first, second, third = on_ranks(rounded, 3)
    assert first.equal(second)
    assert first.equal(third)
