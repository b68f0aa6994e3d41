"""Differences of rates from turns: their estimate, and what they say of all rates and of the front."""

import math

import numpy as np
import pytest

from search.front.differences import FEWEST_ROUNDS, Estimate, log_ratio, reconcile
from search.record.columns import describe_columns
from search.record.dataframes import Run
from search.record.run_state import RunState
from search.report.front_tables import front_section
from search.text.numbers import format_difference, format_ratio
from tests.search.runs import INFO, Recorder, config, interval, typed

RATE = "images_per_second"


def rounds(number, ratio=1.0, noise=0.03, seed=0):
    """Both rates fall to a half for a while; each turn has some noise of its own."""
    rng = np.random.default_rng(seed)
    common = np.where(np.arange(number) % 7 < 3, 0.5, 1.0)
    return [tuple(c * r * math.exp(noise * rng.standard_normal()) for r in (100 * ratio, 100.0)) for c in common]


def test_what_slows_both_cancels_in_the_ratio():
    estimate = log_ratio(rounds(20, ratio=1.10, seed=1))
    assert estimate.mean == pytest.approx(math.log(1.10), abs=0.03)
    assert 0.004 < estimate.deviation < 0.02  # 0.042 / 20 ** 0.5
    assert estimate.is_decided
    assert not estimate.is_tie


def test_one_turn_that_was_struck_hardly_moves_the_estimate():
    struck = rounds(20)
    struck[3] = (10.0, struck[3][1])
    assert log_ratio(struck).mean == pytest.approx(log_ratio(rounds(20)).mean, abs=0.01)


def test_few_rounds_give_no_estimate():
    assert log_ratio(rounds(FEWEST_ROUNDS - 1)) is None
    assert log_ratio(rounds(FEWEST_ROUNDS)) is not None


@pytest.mark.parametrize("number", [6, 8, 20])
def test_intervals_hold_zero_for_equal_rates(number):
    held = [log_ratio(rounds(number, seed=seed)) for seed in range(3000)]
    assert sum(each.low <= 0 <= each.high for each in held) >= 0.945 * 3000


def test_a_difference_surely_too_small_to_matter_is_a_tie():
    assert Estimate(0.005, 0.004).is_tie
    assert Estimate(0.005, 0.004).is_decided
    assert not Estimate(0.005, 0.02).is_decided


def test_turns_make_the_difference_of_two_levels_as_sharp_as_they_are_and_not_the_levels():
    levels = {"a": Estimate(0.0, 0.2), "b": Estimate(0.3, 0.2)}
    found, covariance = reconcile(levels, {("a", "b"): Estimate(0.1, 0.01)})
    assert found["a"].mean - found["b"].mean == pytest.approx(0.1, abs=0.002)
    assert (found["a"].mean + found["b"].mean) / 2 == pytest.approx(0.15)
    assert math.sqrt(covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]) == pytest.approx(0.01, rel=0.01)
    assert found["a"].deviation == pytest.approx(0.2, rel=0.01)


def test_rates_that_were_not_compared_keep_their_intervals():
    levels = {name: Estimate(0.0, 0.02) for name in "abcd"}
    assert [each.deviation for each in reconcile(levels, {})[0].values()] == pytest.approx([0.02] * 4)
    found, _ = reconcile(levels, {("a", "b"): Estimate(0.0, 0.001)})
    assert [each.deviation for each in found.values()] == pytest.approx([0.02] * 4, rel=0.01)


def with_turns(*pairs, number=12, **changed):
    recorder = Recorder(constraints=[], **changed)
    for trial_id, size, accuracy, rate in (("t0001", 64, 0.70, 100.0), ("t0002", 128, 0.69, 104.0)):
        recorder.start(trial_id, **config(size))
        ends = {f"{RATE}_low": rate - 30, f"{RATE}_high": rate + 30}
        recorder.measure(trial_id, 3, val_accuracy=accuracy, val_accuracy_low=accuracy, val_accuracy_high=accuracy)
        recorder.events[-1]["metrics"] |= {RATE: rate, **ends}
        recorder.finish(trial_id)
    for one, other, ratio in pairs:
        for rates in rounds(number, ratio):
            recorder.add("turn", trial_id=one, other=other, rates=rates)
    return RunState(typed(recorder.events))


@pytest.mark.parametrize("seed", range(20))
def test_differences_without_any_error_leave_a_covariance_from_which_errors_can_be_drawn(seed):
    """Of rounds whose ratios are all equal; this failed on one kind of processor."""
    rng = np.random.default_rng(seed)
    names = [f"t{i}" for i in range(6)]
    levels = {name: Estimate(0.0, 10 ** rng.uniform(-2, 0)) for name in names}
    equal = log_ratio([(3.0, 2.0)] * FEWEST_ROUNDS)
    assert equal is not None
    settled, covariance = reconcile(levels, {(one, other): equal for one in names for other in names if one < other})
    assert np.isfinite([each.deviation for each in settled.values()]).all()
    np.linalg.cholesky(covariance)


def test_a_front_is_uncertain_by_levels_and_certain_by_turns():
    by_levels, by_turns = with_turns(), with_turns(("t0001", "t0002", 1.2))
    assert len(by_levels.front()) == 2
    assert 0.4 < by_levels.front_probabilities()["t0002"] < 0.7
    assert [trial.trial_id for trial in by_turns.front()] == ["t0001"]
    assert by_turns.front_probabilities() == {"t0001": 1.0, "t0002": pytest.approx(0.0, abs=0.01)}
    ratio = by_turns.rate_ratio(*by_turns.trials.values())
    assert math.exp(ratio.mean) == pytest.approx(1.2, rel=0.03)
    assert by_turns.num_rounds(*reversed(by_turns.trials.values())) == 12


@pytest.mark.parametrize(
    ("ratio", "low", "high", "text"),
    [
        (1.28, 1.25, 1.31, "1.28 (1.25 to 1.31)"),
        (0.15, 0.04, 0.64, "0.15 (0.04 to 0.64)"),  # wide, and surely below 1
        (1.0, 0.44, 2.28, "1.00 (0.44 to 2.28)"),
        (0.7, 0.0, 332.39, "0.70 ± ?"),
        (2.0, 2.0, 2.0, "2.00"),
        (0.004, 0.0039, 0.0041, "0.004 (0.0039 to 0.0041)"),
    ],
)
def test_a_ratio_whose_interval_says_nothing_has_a_question_mark(ratio, low, high, text):
    assert format_ratio(ratio, low, high) == text


@pytest.fixture
def without_intervals():
    """Rates that are known by turns alone; the first one was measured by a trial that was stopped, too."""
    recorder = Recorder(constraints=[])
    recorder.start("t0001", **config(64, 0.9))
    recorder.measure("t0001", 1, "stop", val_accuracy=0.1, **{RATE: 90.0})
    recorder.finish("t0001", "stopped")
    for trial_id, size, accuracy, rate in (
        ("t0002", 64, 0.7, 110.0),
        ("t0003", 128, 0.6, 200.0),
        ("t0004", 256, 0.5, 400.0),
    ):
        recorder.start(trial_id, **config(size))
        recorder.measure(trial_id, 3, val_accuracy=accuracy, val_accuracy_low=accuracy, val_accuracy_high=accuracy)
        recorder.events[-1]["metrics"] |= {RATE: rate}
        recorder.finish(trial_id)
    for one, other in (("t0001", "t0003"), ("t0003", "t0004")):
        for rates in rounds(12, 0.5):
            recorder.add("turn", trial_id=one, other=other, rates=rates)
    return RunState(typed(recorder.events))


def test_no_rate_is_drawn_below_zero(without_intervals):
    assert without_intervals.half_interval(without_intervals.trials["t0002"], RATE) > 10.0
    odds = without_intervals.front_probabilities()
    assert all(odds[name] > 0.99 for name in ("t0002", "t0003", "t0004"))


def test_a_rate_is_named_after_the_point_of_the_front_that_has_it(without_intervals):
    named = [(one.trial_id, other.trial_id) for one, other in without_intervals.pairs]
    assert named == [("t0002", "t0003"), ("t0003", "t0004")]


def test_turns_the_other_way_round_are_the_same_turns():
    one, other = with_turns(("t0001", "t0002", 1.25)), with_turns(("t0002", "t0001", 0.8))
    ratios = [state.rate_ratio(*state.trials.values()).mean for state in (one, other)]
    assert ratios[0] == pytest.approx(ratios[1], abs=0.03)


@pytest.mark.parametrize("rate", [None, 1.0])
def test_a_rate_by_turns_has_the_level_of_a_trial_that_measured_it(rate):
    """The first trials with these settings failed, perhaps after a report."""
    recorder = Recorder(constraints=[])
    for trial_id, size in (("t0003", 64), ("t0004", 128)):
        recorder.start(trial_id, **config(size, 0.9))
        if rate:
            recorder.measure(trial_id, 1, val_accuracy=0.1, **interval(rate, 0.01))
        recorder.finish(trial_id, "failed")
    for trial_id, size, rate in (("t0001", 64, 2000.0), ("t0002", 128, 2100.0)):
        recorder.complete(trial_id, [0.5], rate, config(size, 0.1))
    for rates in rounds(12, 2000.0 / 2100.0):
        recorder.add("turn", trial_id="t0001", other="t0002", rates=rates)
    assert RunState(typed(recorder.events)).trials["t0001"].rate == pytest.approx(2000.0, rel=0.02)


def test_turns_of_a_run_that_recorded_no_rate_settle_it():
    accuracy = {"val_accuracy": "fraction", "val_accuracy_low": "fraction"}
    state = with_turns(("t0001", "t0002", 1.2), metrics=accuracy, objectives=INFO["objectives"][:1])
    assert state.rate_ratio(*state.trials.values()).is_decided


def test_the_start_of_a_resumed_process_is_no_time_of_deciding():
    recorder = Recorder()
    for trial_id, size in (("t0001", 64), ("t0002", 128)):
        recorder.complete(trial_id, [0.5], 100.0, config(size))
    recorder.add("resume", 100.0)
    for _ in range(3):
        recorder.add("turn", 30.0, trial_id="t0001", other="t0002", rates=[1.0, 2.0])
    clock = RunState(typed(recorder.events)).clock
    assert clock.deciding_seconds == 60.0
    assert clock.active_seconds() - clock.searching_seconds() == 60.0  # what follows a search is none of its hours


def test_a_difference_of_rates_is_as_sure_as_their_turns():
    state = with_turns(("t0001", "t0002", 1.2))
    one, other = state.trials["t0001"], state.trials["t0002"]
    found, ratio = state.difference(one, other, "images_per_second"), state.rate_ratio(one, other)
    assert found.mean == pytest.approx(one.rate - other.rate)
    assert found.deviation == pytest.approx(ratio.deviation * other.rate)
    apart = [(state.half_interval(each, "images_per_second") or 0.0) / 1.96 for each in (one, other)]
    assert found.deviation < 0.5 * math.hypot(*apart)


def test_a_snapshot_keeps_the_turns_that_it_had():
    run_state = with_turns(("t0001", "t0002", 1.2))
    snapshot = run_state.snapshot()
    assert snapshot.trials["t0001"].metrics == run_state.trials["t0001"].metrics
    for event in typed([{"event": "turn", "trial_id": "t0001", "other": "t0002", "rates": [1.0, 100.0]}] * 40):
        run_state.apply(event)
    assert snapshot.trials["t0001"].metrics != run_state.trials["t0001"].metrics
    assert snapshot.num_rounds(*snapshot.trials.values()) == 12


def test_pairs_are_a_table(tmp_path):
    run = Run(tmp_path, with_turns(("t0002", "t0001", 0.8)))
    (row,) = run.differences.to_dict("records")
    assert (row["trial_id"], row["other_trial_id"], row["turns"]) == ("t0001", "t0002", 12)
    assert row["rate_ratio_low"] < row["rate_ratio"] < row["rate_ratio_high"]
    assert row["rate_ratio"] == pytest.approx(1.25, rel=0.03)
    run = Run(tmp_path, with_turns())
    (row,) = run.differences.to_dict("records")  # both are on the front
    assert (row["trial_id"], row["other_trial_id"], row["turns"]) == ("t0001", "t0002", 0)
    assert row["val_accuracy_difference"] == pytest.approx(0.01)
    assert "lower end" in describe_columns(["val_accuracy_difference_low"], run.info.trainable, run.info.metrics)


def test_fewer_turns_than_count_are_not_said_to_have_been_used(tmp_path):
    def told(number):
        return " ".join(
            "\n".join(front_section(Run(tmp_path, with_turns(("t0001", "t0002", 0.8), number=number)))).split()
        )

    assert "In turns of half a second" in told(FEWEST_ROUNDS)
    assert "In turns of half a second" not in told(FEWEST_ROUNDS - 1)
    meanings = describe_columns(["turns", "rate_ratio"], "vgg19_cifar10", {})
    assert f"how often both had a turn; they count from {FEWEST_ROUNDS} on" in meanings
    assert f"by turns if they had {FEWEST_ROUNDS} or more" in meanings


def test_a_pair_of_the_front_that_had_turns_is_one_row_whichever_is_first(tmp_path):
    """The names of a pair with turns are sorted; on the front the more accurate one is first."""
    recorder = Recorder(constraints=[])
    for trial_id, size, accuracy, rate in (("t0001", 64, 0.60, 200.0), ("t0002", 128, 0.70, 100.0)):
        recorder.complete(trial_id, [accuracy], rate, config(size))
    for rates in rounds(12, 2.0):
        recorder.add("turn", trial_id="t0001", other="t0002", rates=rates)
    state = RunState(typed(recorder.events))
    assert [trial.trial_id for trial in state.front()] == ["t0002", "t0001"]
    (row,) = Run(tmp_path, state).differences.to_dict("records")
    assert (row["trial_id"], row["other_trial_id"], row["turns"]) == ("t0001", "t0002", 12)


@pytest.mark.parametrize(
    ("ends", "in_points", "text"),
    [
        ((-0.008, -0.014, -0.002), True, "0.80 points lower (0.20 to 1.40)"),
        ((0.003, -0.005, 0.011), True, "0.30 points higher (0.50 lower to 1.10 higher)"),
        ((0.19, 0.19, 0.19), True, "19.00 points higher"),
        ((0.0, 0.0, 0.0), True, "equal"),
        ((0.0, -0.01, 0.01), True, "equal (1.00 lower to 1.00 higher)"),
        ((-0.1234, -0.15, -0.1), False, "0.123 lower (0.100 to 0.150)"),
        ((12.3, 10.0, 14.0), False, "12.3 higher (10.0 to 14.0)"),
        ((5432.1, 5432.1, 5432.1), False, "5,432 higher"),
    ],
)
def test_a_difference_is_told_in_words(ends, in_points, text):
    mean, low, high = ends
    assert format_difference(mean, low, high, in_points=in_points) == text
