"""The best of many trials owe a part of their values to luck: what to expect of them instead."""

import numpy as np
import pytest

from search.front.intervals import HALF_95
from search.front.selection import expected_values
from search.pick.__main__ import main as pick
from search.record.run_state import RunState
from search.report.picks import lucky
from search.report.report import write_summary
from search.results import Run, load
from tests.search.runs import Recorder, config, typed, write_run


@pytest.mark.parametrize("number", [10, 30, 100])
@pytest.mark.parametrize("spread", [0.0, 0.5, 3.0])
def test_an_interval_around_the_expected_value_of_the_best_holds_its_true_value(number, spread):
    """`spread`: standard deviation of the true values, in standard errors; half of the trials are far below."""
    rng, holds, measured = np.random.default_rng(0), 0, 0
    for _ in range(200):
        true = np.where(np.arange(number) % 2, spread * rng.standard_normal(number), -rng.uniform(10, 100, number))
        values = true + rng.standard_normal(number)
        best = values.argmax()
        holds += abs(expected_values(values, np.ones(number))[best] - true[best]) < HALF_95
        measured += abs(values[best] - true[best]) < HALF_95
    assert holds >= 180
    assert measured < (180 if spread < 1 else 200)


def test_values_far_apart_stay_and_one_alone_does():
    far = np.array([0.1, 0.5, 0.9, 1e9])
    assert expected_values(far, np.full(4, 0.01)) == pytest.approx(far, abs=0.005)
    assert expected_values(np.array([0.7]), np.array([0.01])) == pytest.approx([0.7], abs=0.002)


def test_the_better_known_of_two_equal_values_moves_less():
    values, deviations = np.array([0.80, 0.80, 0.70, 0.71, 0.72, 0.73]), np.array([0.02, 0.06, *[0.06] * 4])
    known, other, *_ = expected_values(values, deviations)
    assert 0.73 < other < known - 0.02 < 0.80


def measured(value, half=0.001):
    return {"val_accuracy": value, "val_accuracy_low": value - half, "val_accuracy_high": value + half}


def recorded(*again, number=12):
    """Trials of equal rates, with the luck of normal errors of 0.01; `again`: a further seed of the first trials."""
    rng = np.random.default_rng(3)
    recorder = Recorder(constraints=[])
    for i in range(number):
        name = f"t{i + 1:04d}"
        recorder.start(name, **config(64, learning_rate=0.001 * 1.5**i))
        recorder.measure(name, 3, **measured(0.7 + 0.01 * rng.standard_normal()), images_per_second=100.0)
        recorder.finish(name)
    for i, accuracy in enumerate(again):
        recorder.add("again", trial_id=f"t{i + 1:04d}", seed=1, metrics=measured(accuracy))
    return recorder


def test_what_to_expect_of_the_best_of_equal_trials_is_known_once_seeds_are(tmp_path):
    known, unknown = (RunState(typed(r.events)) for r in (recorded(0.69, 0.71, 0.70, 0.705), recorded()))
    (best,), (other,) = known.front(), unknown.front()
    assert known.luck(best, "val_accuracy") > 0.005
    assert unknown.luck(other, "val_accuracy") == 0
    (sentence,) = lucky(Run(tmp_path, known), best)
    expected = best.metrics["val_accuracy"] - known.luck(best, "val_accuracy")
    assert f"if {best.trial_id} is trained again, expect {expected:.4f} ±" in sentence
    assert lucky(Run(tmp_path, unknown), other) == []


def test_a_rate_that_no_seed_changes_is_not_corrected():
    state = RunState(typed(recorded(0.69, 0.71).events))
    assert state.luck(state.front()[0], "images_per_second") == 0


def test_an_empty_run_knows_no_luck():
    recorder = Recorder()
    recorder.start("t0001", **config())
    state = RunState(typed(recorder.events))
    assert state.luck(state.trials["t0001"], "val_accuracy") == 0


def test_the_summary_and_the_pick_say_what_to_expect(tmp_path, capsys):
    write_run(tmp_path, recorded(0.69, 0.71, 0.70, 0.705).events)
    summary = " ".join(write_summary(load(tmp_path)).split())
    assert "Its val_accuracy is partly luck: if" in summary
    assert "it is too high, because the lucky ones are on the front. The variation between" in summary
    assert pick([str(tmp_path), "--at-least", "val_accuracy=0.705"]) == 0
    output = " ".join(capsys.readouterr().out.split())
    percent = output.split("at least 0.705: ")[1].split("%")[0]
    assert "partly luck" in output
    assert "which this does not count" not in output
    assert float(percent) < 50
