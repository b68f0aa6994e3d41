"""Core speed, under a clock that goes as fast as a test says."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from trainables.measure.core_speed import FIRST_REPETITIONS, REPETITIONS, CoreSpeed


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRAINING_SEARCH_CACHE", f"{tmp_path}")


class Clock:
    """Each piece of arithmetic takes the next of `seconds`, the last one for ever."""

    def __init__(self, seconds: Iterator[float]) -> None:
        self._seconds, self._now, self._calls = seconds, 0.0, 0

    def __call__(self) -> float:
        self._calls += 1
        if self._calls % 2 == 0:
            self._now += next(self._seconds)
        return self._now


def seconds(*calls: float, first: float = 1.0) -> Iterator[float]:
    yield from [first] * FIRST_REPETITIONS
    for call in calls:
        yield from [10 * call, call, 2 * call][:REPETITIONS]


def test_the_slowdown_is_the_fastest_of_a_few_over_the_fastest_ever() -> None:
    slowdown = CoreSpeed(Clock(seconds(1.5, 1.0, 3.0)))
    assert [slowdown(), slowdown(), slowdown()] == pytest.approx([1.5, 1.0, 3.0])


def test_a_faster_one_than_ever_is_what_later_ones_are_compared_with() -> None:
    slowdown = CoreSpeed(Clock(seconds(0.5, 1.0)))
    assert [slowdown(), slowdown()] == pytest.approx([1.0, 2.0])


def test_what_was_seen_is_kept_for_the_next_process() -> None:
    CoreSpeed(Clock(seconds(first=1.0)))
    assert CoreSpeed(Clock(iter([3.0] * REPETITIONS)))() == pytest.approx(3.0)


def test_the_arithmetic_is_real_and_changes_nothing() -> None:
    state = torch.get_rng_state()
    assert CoreSpeed()() >= 1.0
    assert torch.equal(torch.get_rng_state(), state)
