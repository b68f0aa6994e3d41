"""What ring all-reduce does besides giving the losses of `single`: buckets, order, errors, one rank."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from tests.trainables.shapes import VGG_SHAPE
from tests.trainables.test_strategies import CPU, OFF, settings_of, trained
from trainables.network.vgg import vgg
from trainables.parallel import ranks, ring
from trainables.parallel.ranks import bucket_groups
from trainables.strategies import ring_allreduce


@pytest.fixture
def alone() -> Iterator[None]:
    with ranks.group(1, CPU):
        yield


def test_one_rank_is_single(alone: None) -> None:
    assert trained("ring_allreduce", 0, 1).losses == trained("single", 0, 1).losses


def test_buckets_hold_all_parameters_from_the_last_to_the_first() -> None:
    parameters = [nn.Parameter(torch.zeros(size)) for size in (60, 3, 20, 10, 1)]
    sizes = [[len(each) for each in bucket] for bucket in bucket_groups(reversed(parameters), 100)]
    assert sizes == [[1, 10, 20], [3, 60]]


def test_rings_run_in_the_order_of_the_buckets_whichever_is_full_first(
    alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or two ranks would wait for each other in different rings."""
    monkeypatch.setattr(ring_allreduce, "BUCKET_BYTES", 4)
    sums: list[int] = []
    monkeypatch.setattr(ring, "all_reduce", lambda vector, arriving: sums.append(len(vector)))
    first, second, third = (nn.Parameter(torch.zeros(size)) for size in (1, 2, 3))
    rings = ring_allreduce._Rings([first, second, third], CPU)
    for parameter in (first, third, second):
        parameter.sum().backward()
    rings.finish()
    assert sums == [3, 2, 1]


def test_what_fails_in_a_ring_fails_the_step(alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("Connection closed by peer")

    monkeypatch.setattr(ring, "all_reduce", broken)
    step = ring_allreduce.build(vgg(width=0.01), settings_of("ring_allreduce"), VGG_SHAPE, CPU)
    with pytest.raises(RuntimeError, match="Connection closed by peer"):
        step(torch.zeros(2, 3, 32, 32), torch.zeros(2, dtype=torch.int64), OFF)
