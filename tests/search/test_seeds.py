"""Trials that were trained with several seeds: mean, spread, and what it means for the others."""

import itertools
import math
from typing import Any

import numpy as np
import pytest

from search.front.intervals import HALF_95
from search.front.seeds import PRIOR_SEEDS, Scale, Spread, over_seeds, spread_of
from search.front.shared import SharedMetrics
from search.record.groups import Groups
from search.record.run_state import RunState
from search.report.front_tables import front_section
from search.results import Run
from tests.search.runs import Recorder, config, typed
from trainables.kept_samples import as_text
from trainables.student_t import student_t


def metrics(value, half=0.01):
    return {"val_accuracy": value, "val_accuracy_low": value - half, "val_accuracy_high": value + half}


def variance(again=(), alike=(), metric="val_accuracy", goal="maximize"):
    found = spread_of(metric, goal, again, alike)
    return None if found is None else found.deviation(0.7) ** 2


def widened(squares, freedom):
    return squares / freedom * (student_t(freedom) / HALF_95) ** 2


def test_the_spread_is_that_of_all_configurations_together():
    exact = [[{"x": 1.0}, {"x": 3.0}], [{"x": 11.0}, {"x": 11.0}, {"x": 14.0}]]
    assert variance(exact, metric="x") == pytest.approx(widened(2.0 + 6.0, 3))


def test_of_one_seed_each_nothing_follows():
    assert variance([[{"x": 1.0}], [{"x": 2.0}], []], metric="x") is None


def test_few_seeds_that_agree_by_luck_do_not_make_the_spread_zero():
    by_samples = (0.01 / HALF_95) ** 2
    expected = widened(by_samples * PRIOR_SEEDS, 1 + PRIOR_SEEDS)
    assert variance([[metrics(0.7), metrics(0.7)]]) == pytest.approx(expected)


def test_the_spread_of_many_seeds_is_found():
    rng = np.random.default_rng(0)
    trained = [[metrics(0.7 + 0.02 * rng.standard_normal()) for _ in range(3)] for _ in range(200)]
    assert math.sqrt(variance(trained)) == pytest.approx(0.02, rel=0.1)
    assert math.sqrt(variance(alike=[[each for some in trained for each in some]])) == pytest.approx(0.02, rel=0.1)


@pytest.mark.parametrize(
    "sizes", [([2], []), ([3, 3, 3], []), ([], [4]), ([], [3] * 5), ([2], [4])], ids=["2", "3x3", "4~", "5x3~", "2, 4~"]
)
@pytest.mark.parametrize(("ratio", "least"), [(1.0, 930), (3.0, 850)])
def test_an_interval_over_seeds_holds_the_mean_whatever_it_was_estimated_from(sizes, ratio, least):
    """In 95% of the cases, but for the luck of 1,000, where seeds differ as much as samples do; nearly if by more."""
    rng, holds, deviation = np.random.default_rng(1), 0, 0.01 / HALF_95
    for _ in range(1000):
        again, alike = ([[metrics(x) for x in rng.normal(0, ratio * deviation, n)] for n in each] for each in sizes)
        found = over_seeds(
            [metrics(rng.normal(0, math.hypot(1, ratio) * deviation))], {"val_accuracy": Spread(variance(again, alike))}
        )
        holds += found["val_accuracy_low"] <= 0 <= found["val_accuracy_high"]
    assert holds > least


def test_a_little_more_scatter_makes_the_spread_a_little_larger():
    for measured in ("again", "alike"):
        found = [
            math.sqrt(variance(**{measured: [[metrics(0.5), metrics(0.5 + gap / 1e4)]]})) for gap in range(10, 990)
        ]
        assert all(0 <= after - before < 0.03 * before for before, after in itertools.pairwise(found))


def test_losses_that_differ_by_factors_have_a_relative_spread():
    """Seeds change a loss of 8 by more than one of 0.03."""
    again = [[{"val_loss": 8.0}, {"val_loss": 8.4}, {"val_loss": 7.6}], [{"val_loss": 0.030}, {"val_loss": 0.031}]]
    spread = spread_of("val_loss", "minimize", again, [])
    assert spread is not None
    found = over_seeds([{"val_loss": 0.03}], {"val_loss": spread})
    assert 0.02 < found["val_loss_low"] < 0.03 < found["val_loss_high"] < 0.04
    signed = spread_of("reward", "minimize", [[{"reward": -1.0}, {"reward": 0.5}]], [])
    assert signed is not None
    assert signed.scale is Scale.PLAIN


def test_accuracies_near_1_differ_less_between_seeds():
    again = [[{"val_accuracy": 0.257}, {"val_accuracy": 0.397}], [{"val_accuracy": 0.696}, {"val_accuracy": 0.538}]]
    spread = spread_of("val_accuracy", "maximize", again, [])
    assert spread is not None
    assert spread.deviation(0.9) < 0.4 * spread.deviation(0.5)
    assert 0 < spread.deviation(1.0) < 0.01 * HALF_95


def test_a_mean_over_seeds_is_surer_of_the_seed_but_not_of_the_samples():
    spreads = {"val_accuracy": Spread(0.02**2)}
    one, four = (over_seeds([metrics(0.7)] * number, spreads) for number in (1, 4))
    half = [found["val_accuracy_high"] - found["val_accuracy"] for found in (one, four)]
    assert half == pytest.approx([math.hypot(0.01, HALF_95 * 0.02), math.hypot(0.01, HALF_95 * 0.01)])


def with_seeds(*again):
    """Two trials of the same samples, measured with all but equal results; `again`: accuracies of further seeds."""
    rng = np.random.default_rng(0)
    recorder, hard = Recorder(constraints=[]), rng.standard_normal(2000)
    for number, end in ((1, 0.50), (2, 0.53)):
        values = (hard + 0.2 * rng.standard_normal(2000) < end).astype(float)
        recorder.start(f"t000{number}", **config(64 * number))
        half = HALF_95 * values.std(ddof=1) / 2000**0.5
        recorder.measure(f"t000{number}", 3, **metrics(values.mean(), half), images_per_second=100.0 / number)
        recorder.events[-1]["samples"] = {"val_accuracy": as_text(values)}
        recorder.finish(f"t000{number}")
    for number, accuracy in again:
        recorder.add("again", trial_id=f"t000{number}", seed=1, metrics=metrics(accuracy))
    return RunState(typed(recorder.events))


def test_the_spread_between_seeds_widens_the_difference_of_all_pairs():
    narrow, wide = with_seeds(), with_seeds((1, 0.60))
    found = [s.difference(*s.trials.values(), "val_accuracy").deviation for s in (narrow, wide)]
    assert found[1] > 3 * found[0]
    assert len(wide.trials["t0001"].again) == 1
    mean = (narrow.trials["t0001"].metrics["val_accuracy"] + 0.60) / 2
    assert wide.trials["t0001"].metrics["val_accuracy"] == pytest.approx(mean)


def test_a_seed_without_the_measurement_of_the_first_counts_for_nothing():
    recorder = Recorder()
    recorder.start("t0001", **config())
    recorder.finish("t0001")
    recorder.add("again", trial_id="t0001", seed=1, metrics=metrics(0.5))
    state = RunState(typed(recorder.events))
    assert (state.trials["t0001"].metrics, state.front()) == ({}, [])


def test_a_seed_counts_once_for_trials_that_share_the_metric():
    def after(*again):
        recorder = Recorder()
        for number in (1, 2):
            recorder.complete(f"t000{number}", [0.5], 100.0, config(loader="workers", num_workers=number))
            recorder.events[-2]["metrics"] |= metrics(0.5)
        for number in again:
            recorder.add("again", trial_id=f"t000{number}", seed=1, metrics=metrics(0.44))
        return RunState(typed(recorder.events)).trials["t0001"].metrics

    assert after(1, 2) == after(1)
    assert after(1)["val_accuracy"] == pytest.approx(0.47)


def test_a_snapshot_keeps_its_seeds():
    state = with_seeds((1, 0.60))
    snapshot = state.snapshot()
    for event in typed([{"event": "again", "trial_id": "t0001", "seed": 2, "metrics": metrics(0.1)}]):
        state.apply(event)
    assert snapshot.trials["t0001"].metrics["val_accuracy"] > state.trials["t0001"].metrics["val_accuracy"] + 0.1


def test_the_summary_says_what_was_trained_several_times(tmp_path):
    text = " ".join(" ".join(front_section(Run(tmp_path, with_seeds((1, 0.60))))).split())
    assert "Trained several times: t0001 (2 seeds); all others once." in text
    assert "The variation between random seeds is included" in text
    text = " ".join(" ".join(front_section(Run(tmp_path, with_seeds()))).split())
    assert "The variation between random seeds is not included." in text


def nearly(*trials):
    """Trials of one epoch with these learning rates, of 0.001 to 0.5, and accuracies."""
    recorder = Recorder(constraints=[])
    for number, (rate, accuracy) in enumerate(trials, start=1):
        recorder.start(f"t{number:04d}", **config(64, rate))
        recorder.measure(f"t{number:04d}", 1, **metrics(accuracy), images_per_second=100.0)
        recorder.finish(f"t{number:04d}")
    return RunState(typed(recorder.events))


def test_trials_of_nearly_equal_settings_tell_of_the_spread_between_seeds():
    """As where a search repeats what was best; the best of them is so by luck."""
    twins = [(0.5, 0.70), (0.4999, 0.60), (0.498, 0.65)]
    state, apart = nearly(*twins, (0.01, 0.50)), nearly((0.5, 0.70), (0.3, 0.60), (0.1, 0.65), (0.01, 0.50))
    assert (state.knows_seeds, apart.knows_seeds) == (True, False)
    halves = [each.half_interval(each.trials["t0004"], "val_accuracy") for each in (state, apart)]
    assert halves[1] == pytest.approx(0.01)
    assert 0.05 < halves[0] < 0.3
    assert state.trials["t0001"].metrics["val_accuracy"] == 0.70


def test_the_twins_of_a_snapshot_are_its_own_trials():
    snapshot = nearly((0.5, 0.7), (0.4999, 0.6)).snapshot()
    first, second = snapshot.trials.values()
    assert [id(twin) for twin in snapshot.twins(first)] == [id(second)]


def test_nearly_equal_settings_of_another_length_tell_nothing():
    recorder = Recorder(constraints=[])
    for number, curve in ((1, [0.3, 0.5]), (2, [0.3])):
        recorder.complete(f"t000{number}", curve, 100.0, config(64, 0.5 - number / 1e4))
    assert not RunState(typed(recorder.events)).knows_seeds


def test_many_trials_of_nearly_equal_settings_are_not_all_compared_each_time(monkeypatch):
    compared = []
    compare = Groups._compare_seeds
    monkeypatch.setattr(Groups, "_compare_seeds", lambda groups: compared.append(1) or compare(groups))
    nearly(*((0.5 - number / 1e6, 0.5) for number in range(300)))
    assert 20 < len(compared) < 60


def test_a_trial_that_diverged_tells_of_its_settings_and_not_of_seeds():
    pairs = [(0.5, 0.700), (0.4999, 0.704), (0.1, 0.690), (0.0999, 0.692), (0.3, 0.55), (0.2999, 0.10)]
    state = nearly(*pairs)
    assert state.half_interval(state.trials["t0001"], "val_accuracy") < 0.02


def test_seeds_decide_where_there_are_any_and_nearly_equal_settings_where_there_are_none():
    """Also where those of trials that learned nothing are all but equal."""
    again = [[{"x": 0.57}, {"x": 0.27}], [{"x": 0.41}, {"x": 0.53}]]
    alike = [[{"x": 0.100}, {"x": 0.101}, {"x": 0.102}]]
    assert variance(again, alike, "x") == variance(again, metric="x") > 0.1**2
    assert variance(alike=alike, metric="x") < 0.01**2
    assert variance(alike=[[{"x": 0.7}]], metric="x") is None


def test_nearly_equal_settings_of_trials_that_learned_little_do_not_tell():
    poor, good = [{"x": 0.100}, {"x": 0.101}, {"x": 0.100}], [{"x": 0.6}, {"x": 0.7}]
    others = [[{"x": 0.5}], [{"x": 0.65}]]
    assert variance(alike=[poor, good, *others], metric="x") == variance(alike=[good], metric="x")
    assert variance(alike=[poor, *others], metric="x") is None


def test_few_layers_are_not_nearly_as_many():
    stated: dict[str, dict[str, Any]] = {"depth": {"min": 1, "max": 200}, "rate": {"min": 0.1, "max": 1.0}}
    learned = SharedMetrics(("x",), frozenset(), learned=True)
    assert learned.nearly({"depth": 3}, stated) != learned.nearly({"depth": 4}, stated)
    assert learned.nearly({"depth": 160}, stated) == learned.nearly({"depth": 161}, stated)
    assert learned.nearly({"rate": 0.5}, stated) == learned.nearly({"rate": 0.502}, stated)
