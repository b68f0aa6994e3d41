"""What ranks tell each other."""

import math
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from tests.trainables.ranked import on_ranks
from trainables.contract import InfeasibleError, waited_since
from trainables.parallel import ranks

CPU = torch.device("cpu")


def test_tensors_of_several_types_are_no_message() -> None:
    with pytest.raises(InfeasibleError, match="weights of several types: float32, float64"):
        ranks.flattened([torch.zeros(2), torch.zeros(2, dtype=torch.float64)])


def uneven(rank: int, world_size: int) -> float:
    return ranks.imbalance([1.0 + 2 * rank], world_size, CPU)


def test_imbalance_is_the_largest_by_the_mean() -> None:
    """Of one process's devices, or of all processes' one."""
    assert ranks.imbalance([0.9, 0.3], 1, CPU) == pytest.approx(1.5)
    assert ranks.imbalance([2.0, 2.0, 2.0], 1, CPU) == 1.0
    assert on_ranks(uneven, 2) == [1.5, 1.5]


@pytest.mark.parametrize("values", [[], [0.5], [0.0, 0.0]])
def test_what_cannot_be_uneven_or_is_not_known_has_no_imbalance(values: list[float]) -> None:
    assert math.isnan(ranks.imbalance(values, 1, CPU))


def interleaved(rank: int, world_size: int, uneven: bool) -> list[list[float]]:
    """Rows of 7 samples, of which rank 0 has the even ones; or 5 rows of rank 1 and one of rank 0."""
    numbers = range(100, 101) if uneven and rank == 0 else range(1, 6) if uneven else range(rank, 7, 2)
    rows = torch.tensor([[float(number), 1.0] for number in numbers])
    return ranks.interleaved(rows, rank, world_size).tolist()


@pytest.mark.parametrize(("uneven", "first"), [(False, range(7)), (True, [100, 1, 2, 3, 4, 5])])
def test_rows_of_all_ranks_are_in_order(uneven: bool, first: Iterable[int]) -> None:
    expected = [[float(number), 1.0] for number in first]
    assert on_ranks(interleaved, 2, uneven) == [expected, expected]
    assert ranks.interleaved(torch.tensor(expected), 0, 1).tolist() == expected


def late(rank: int, world_size: int) -> list[float]:
    """Two meetings, to the second of which rank 1 comes after the timeout of messages."""
    dist.distributed_c10d._get_default_store().set_timeout(timedelta(seconds=0.5))
    ranks.meet(world_size)
    if rank == 1:
        time.sleep(1.5)
    started = time.monotonic()
    ranks.meet(world_size)
    return [time.monotonic() - started, float(waited_since(started))]


def test_ranks_wait_for_each_other_to_be_ready_and_say_that_they_wait() -> None:
    (early, waited), (last, _) = on_ranks(late, 2)
    assert early > 1.2 > last
    assert waited
    ranks.meet(1)  # with nobody to wait for


def test_each_task_of_a_group_has_answers_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    store = dist.HashStore()  # type: ignore[attr-defined]
    monkeypatch.setattr(ranks, "_get_default_store", lambda: store)
    with ThreadPoolExecutor(1) as rank_1:
        for answer in (True, False, True, True, False):  # tasks of two and of three rounds
            heard = rank_1.submit(ranks.answer_of_rank_0, True, 1, 2)
            time.sleep(0.02)
            assert not heard.done()
            assert ranks.answer_of_rank_0(answer, 0, 2) == answer == heard.result(1)
