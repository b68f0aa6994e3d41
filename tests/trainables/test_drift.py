"""Drift: what is known of a machine from repeats, on machines whose drift is known."""

import math
import random
from pathlib import Path

import pytest
import torch

from trainables.measure.drift import (
    BELIEF,
    MOST_LEVELS,
    RECENT_SECONDS,
    TYPICAL,
    UNKNOWN,
    Level,
    Levels,
    drift_of,
    named,
)

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRAINING_SEARCH_CACHE", f"{tmp_path}")


def repeats(deviation: float, count: int, work: str = "a", seed: int = 0) -> list[Level]:
    rng = random.Random(seed)
    return [(work, 0.0, 7.0 + rng.gauss(0, deviation)) for _ in range(count)]


def levels_at(now: float, threads: int = 1) -> Levels:
    return Levels(CPU, threads, now=lambda: now)


def test_works_that_were_measured_once_tell_nothing_about_drift() -> None:
    assert drift_of([]) == drift_of([("a", 0.0, 1.0), ("b", 0.0, 9.0)]) == UNKNOWN


@pytest.mark.parametrize("deviation", [0.01, 0.03, 0.1])
def test_with_many_repeats_the_drift_is_that_of_the_repeats(deviation: float) -> None:
    found = drift_of(repeats(deviation, MOST_LEVELS))
    assert found.deviation == pytest.approx(deviation, rel=0.2)
    assert found.degrees_of_freedom == BELIEF + MOST_LEVELS - 1


def test_few_repeats_move_what_is_typical_only_a_little() -> None:
    assert TYPICAL < drift_of([("a", 0.0, 7.0), ("a", 0.0, 7.2)]).deviation < 0.2 / math.sqrt(2)
    assert drift_of([("a", 0.0, 1.0)] * 2).deviation == pytest.approx(TYPICAL * math.sqrt(BELIEF / (BELIEF + 1)))


def test_no_machine_is_taken_for_perfectly_steady() -> None:
    assert drift_of([("a", 0.0, 1.0)] * MOST_LEVELS).deviation > 0.004


def test_that_works_differ_in_rate_is_no_drift() -> None:
    slow = [("b", when, rate + 3) for _, when, rate in repeats(0.05, 30, seed=2)]
    both = drift_of(repeats(0.05, 30) + slow)
    assert both.deviation == pytest.approx(0.05, rel=0.2)


def test_the_name_of_a_work_depends_on_what_it_is_and_not_on_the_order_of_its_settings() -> None:
    assert named({"a": 1, "b": 2}) == named({"b": 2, "a": 1}) != named({"a": 2, "b": 2})


def test_the_next_process_knows_what_was_learned() -> None:
    levels_at(0.0).learn({"work": [100.0]})
    assert levels_at(1.0).drift() == UNKNOWN
    levels_at(1.0).learn({"work": [150.0], "yardstick": []})
    assert levels_at(2.0).drift().deviation > 3 * TYPICAL


def test_learning_nothing_writes_nothing(tmp_path: Path) -> None:
    levels_at(0.0).learn({"work": []})
    assert not list(tmp_path.iterdir())


def test_what_is_known_is_of_so_many_threads_and_of_the_last_hour() -> None:
    levels_at(0.0).learn({"work": [100.0, 150.0]})
    assert levels_at(RECENT_SECONDS, threads=1).drift() != UNKNOWN
    assert levels_at(RECENT_SECONDS, threads=2).drift() == UNKNOWN
    assert levels_at(RECENT_SECONDS + 1).drift() == UNKNOWN


def test_only_the_last_levels_are_kept() -> None:
    levels_at(0.0).learn({"work": [100.0, 200.0]})
    levels_at(0.0).learn({"work": [150.0] * MOST_LEVELS})
    assert levels_at(0.0).drift().degrees_of_freedom == BELIEF + MOST_LEVELS - 1
    assert levels_at(0.0).drift().deviation < TYPICAL


def test_a_cache_that_cannot_be_written_leaves_what_is_typical(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRAINING_SEARCH_CACHE", f"{tmp_path}/file")
    levels_at(0.0).learn({"work": [100.0, 200.0]})
    assert levels_at(0.0).drift() == UNKNOWN
    assert "cannot be used" in caplog.text
