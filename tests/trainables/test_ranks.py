"""What ranks tell each other."""

import math

import pytest
import torch

from tests.trainables.ranked import on_ranks
from trainables.parallel import ranks

CPU = torch.device("cpu")


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
