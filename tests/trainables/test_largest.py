"""The largest number within a limit: found whatever the line, in few evaluations."""

import random

import pytest

from trainables.prediction.largest import FINENESS, largest


@pytest.mark.parametrize("step", [1, 2, 4])
def test_the_answer_is_within_the_limit_and_hardly_larger_ones_are_not(step: int) -> None:
    rng = random.Random(step)
    for _ in range(300):
        fixed, slope, bend = rng.uniform(0, 2e9), 10 ** rng.uniform(2, 7), rng.randint(1, 5000)
        further, limit = slope * rng.choice([-0.4, 0, 1]), rng.uniform(1e9, 3e10)
        asked: list[int] = []

        def total(
            number: int,
            fixed: float = fixed,
            slope: float = slope,
            bend: int = bend,
            further: float = further,
            asked: list[int] = asked,
        ) -> float:
            asked.append(number)
            return fixed + slope * number + further * max(0, number - bend)

        found = largest(total, limit, step)
        assert found % step == 0
        assert len(asked) <= 8
        if found == 0:
            assert total(step) > limit
        else:
            assert total(found) <= limit
            assert total(found + max(step, found // FINENESS + step)) > limit
