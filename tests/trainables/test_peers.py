"""Another process's end is told apart from one's own."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.trainables.ranked import on_ranks
from trainables.contract import PeerLostError
from trainables.parallel.peers import reported

CLOSED = "[/build/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:4711"


def test_what_gloo_says_of_a_lost_connection_is_no_error_of_this_rank() -> None:
    with pytest.raises(PeerLostError) as lost, reported():
        raise RuntimeError(CLOSED)
    assert str(lost.value) == "lost another rank: Connection closed by peer [127.0.0.1]:4711"


def test_also_where_it_was_wrapped() -> None:
    with pytest.raises(PeerLostError, match="Connection closed"), reported():
        raise RuntimeError("stage 1 failed to run forward") from RuntimeError(CLOSED)


def test_a_real_rank_that_never_comes_is_lost() -> None:
    """The store of a group of two of which one is there."""
    store = torch._C._distributed_c10d.HashStore()
    store.set_timeout(timedelta(seconds=0.1))
    with pytest.raises(PeerLostError), reported():
        store.get("the other's address")


def _wait(rank: int, world_size: int) -> str | None:
    """Rank 1 is busy with something else for longer than rank 0 waits."""
    group: Any = dist.new_group(timeout=timedelta(seconds=1))
    if rank == 1:
        time.sleep(2.5)
        return None
    try:
        with reported():
            dist.all_reduce(torch.ones(1), group=group)
    except PeerLostError as error:
        return str(error)
    return None


def test_a_rank_that_keeps_the_others_waiting_is_lost() -> None:
    (said, _) = on_ranks(_wait, 2)
    assert said.startswith("lost another rank: Timed out waiting 1000ms")


@pytest.mark.parametrize("error", [RuntimeError("shape '[2]' is invalid for input of size 3"), ValueError("gloo/")])
def test_ones_own_errors_stay_what_they_are(error: Exception) -> None:
    with pytest.raises(type(error)) as raised, reported():
        raise error
    assert raised.value is error


def test_a_matrix_of_the_wrong_shape_is_ones_own() -> None:
    with pytest.raises(RuntimeError, match="size"), reported():
        torch.ones(2) @ torch.ones(3)
