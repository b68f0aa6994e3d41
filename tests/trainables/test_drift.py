"""Drift: what is known of a machine from repeats, on machines whose drift is known."""

import math
import random
from pathlib import Path

import pytest
import torch

from trainables.measure.drift import (
    MAX_RECORDS,
    PRIOR_REPEATS,
    RECENT_SECONDS,
    TYPICAL_DRIFT,
    UNKNOWN_DRIFT,
    RateHistory,
    RateRecord,
    drift_of,
    workload_id,
)

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRAINING_SEARCH_CACHE", f"{tmp_path}")


def repeats(deviation: float, count: int, work: str = "a", seed: int = 0) -> list[RateRecord]:
    rng = random.Random(seed)
    return [(work, 0.0, 7.0 + rng.gauss(0, deviation)) for _ in range(count)]


def history_at(now: float, threads: int = 1) -> RateHistory:
    return RateHistory(CPU, threads, now=lambda: now)


def test_works_that_were_measured_once_tell_nothing_about_drift() -> None:
    assert drift_of([]) == drift_of([("a", 0.0, 1.0), ("b", 0.0, 9.0)]) == UNKNOWN_DRIFT


@pytest.mark.parametrize("deviation", [0.01, 0.03, 0.1])
def test_with_many_repeats_the_drift_is_that_of_the_repeats(deviation: float) -> None:
    found = drift_of(repeats(deviation, MAX_RECORDS))
    assert found.deviation == pytest.approx(deviation, rel=0.2)
    assert found.degrees_of_freedom == PRIOR_REPEATS + MAX_RECORDS - 1


def test_few_repeats_move_what_is_typical_only_a_little() -> None:
    assert TYPICAL_DRIFT < drift_of([("a", 0.0, 7.0), ("a", 0.0, 7.2)]).deviation < 0.2 / math.sqrt(2)
    assert drift_of([("a", 0.0, 1.0)] * 2).deviation == pytest.approx(
        TYPICAL_DRIFT * math.sqrt(PRIOR_REPEATS / (PRIOR_REPEATS + 1))
    )


def test_no_machine_is_taken_for_perfectly_steady() -> None:
    assert drift_of([("a", 0.0, 1.0)] * MAX_RECORDS).deviation > 0.004


def test_that_works_differ_in_rate_is_no_drift() -> None:
    slow = [("b", when, rate + 3) for _, when, rate in repeats(0.05, 30, seed=2)]
    both = drift_of(repeats(0.05, 30) + slow)
    assert both.deviation == pytest.approx(0.05, rel=0.2)


def test_the_name_of_a_work_depends_on_what_it_is_and_not_on_the_order_of_its_settings() -> None:
    assert workload_id({"a": 1, "b": 2}) == workload_id({"b": 2, "a": 1}) != workload_id({"a": 2, "b": 2})


def test_the_next_process_knows_what_was_learned() -> None:
    history_at(0.0).record({"work": [100.0]})
    assert history_at(1.0).drift() == UNKNOWN_DRIFT
    history_at(1.0).record({"work": [150.0], "reference_step": []})
    assert history_at(2.0).drift().deviation > 3 * TYPICAL_DRIFT


def test_learning_nothing_writes_nothing(tmp_path: Path) -> None:
    history_at(0.0).record({"work": []})
    assert not list(tmp_path.iterdir())


def test_what_is_known_is_of_so_many_threads_and_of_the_last_hour() -> None:
    history_at(0.0).record({"work": [100.0, 150.0]})
    assert history_at(RECENT_SECONDS, threads=1).drift() != UNKNOWN_DRIFT
    assert history_at(RECENT_SECONDS, threads=2).drift() == UNKNOWN_DRIFT
    assert history_at(RECENT_SECONDS + 1).drift() == UNKNOWN_DRIFT


def test_only_the_last_levels_are_kept() -> None:
    history_at(0.0).record({"work": [100.0, 200.0]})
    history_at(0.0).record({"work": [150.0] * MAX_RECORDS})
    assert history_at(0.0).drift().degrees_of_freedom == PRIOR_REPEATS + MAX_RECORDS - 1
    assert history_at(0.0).drift().deviation < TYPICAL_DRIFT


def test_a_cache_that_cannot_be_written_leaves_what_is_typical(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRAINING_SEARCH_CACHE", f"{tmp_path}/file")
    history_at(0.0).record({"work": [100.0, 200.0]})
    assert history_at(0.0).drift() == UNKNOWN_DRIFT
    assert "cannot be used" in caplog.text
