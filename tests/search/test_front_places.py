"""Points of the front with the trials that cannot be told apart from them."""

from pathlib import Path

import pytest

from search.record.columns import describe_columns
from search.record.dataframes import Run
from search.record.front_places import front_places
from search.record.run_state import RunState
from search.report.doubts import doubts_about, not_told_apart, perhaps_no_better
from search.report.front_tables import front_section
from tests.search.runs import INFO, Recorder, config, typed


def state_of(*trials):
    """A run of trials with (accuracy, rate); each has another batch size, the rates ± 1%."""
    recorder = Recorder()
    for number, (accuracy, rate) in enumerate(trials, start=1):
        recorder.complete(f"t{number:04d}", [0.3, accuracy], rate, config(8 * number))
    return RunState(typed(recorder.events))


def test_what_differs_by_noise_alone_is_an_alternative_and_the_place_is_sure():
    (place,) = front_places(state_of((0.700, 300.0), (0.699, 299.9), (0.2, 100.0)))
    assert [trial.trial_id for trial in place.alternatives] == ["t0002"]
    assert 0.4 < place.probability < 0.9
    assert place.together == 1.0


@pytest.mark.parametrize(
    ("constraint", "probability"),
    [
        ("images_per_second >= 200", 0.5),
        ("images_per_second >= 0.5 * baseline", 0.5),
        ("images_per_second >= 190", 1.0),
    ],
)
def test_a_point_that_may_violate_a_constraint_may_not_be_on_the_front(constraint, probability):
    """Rates are known to 1%: that of the last is just within the bound."""
    space = {**INFO["space"], "baseline": {"batch_size": 64}}
    recorder = Recorder(constraints=[constraint], space=space)
    for number, (accuracy, rate) in enumerate(((0.70, 400.0), (0.75, 200.01)), start=1):
        recorder.complete(f"t{number:04d}", [0.3, accuracy], rate, config(8 * number))
    odds = RunState(typed(recorder.events)).front_probabilities()
    assert odds == {"t0001": 1.0, "t0002": pytest.approx(probability, abs=0.05)}


def judged(constraint, *, state="complete", rates=(300.0, 300.0), ends=True, objectives=None):
    """Probabilities of two trials with the same batch size, of which the first is the baseline."""
    space = {**INFO["space"], "baseline": {"batch_size": 64}}
    recorder = Recorder(constraints=[constraint], space=space, **({"objectives": objectives} if objectives else {}))
    for number, rate in enumerate(rates, start=1):
        recorder.start(f"t000{number}", **config(64, 0.1 * number))
        found = {"images_per_second": rate, "val_accuracy": 0.5 + number / 10, "peak_memory_gib": 3.0 - number}
        found |= {"images_per_second_low": 0.98 * rate, "images_per_second_high": 1.02 * rate} if ends else {}
        recorder.measure(f"t000{number}", 1, **found)
        recorder.finish(f"t000{number}", state if number == 1 else "complete")
    return RunState(typed(recorder.events)).front_probabilities()


def test_a_rate_that_is_the_baselines_own_meets_a_constraint_relative_to_it():
    goals = [INFO["objectives"][0], {"metric": "peak_memory_gib", "goal": "minimize"}]
    odds = judged("images_per_second >= 0.98 * baseline", objectives=goals)
    assert odds == {"t0001": 0.0, "t0002": 1.0}


def test_a_baseline_that_failed_judges_nothing():
    assert judged("images_per_second >= 0.98 * baseline", state="failed", rates=(300.0, 200.0)) == {"t0002": 1.0}


def test_a_constraint_on_a_rate_without_an_interval_is_known_to_15_percent():
    recorder = Recorder(constraints=["images_per_second >= 200"])
    for number, (accuracy, rate) in enumerate(((0.70, 400.0), (0.75, 200.01)), start=1):
        recorder.start(f"t000{number}", **config(64 * number))
        recorder.measure(f"t000{number}", 1, val_accuracy=accuracy, images_per_second=rate)
        recorder.finish(f"t000{number}")
    assert RunState(typed(recorder.events)).front_probabilities()["t0002"] == pytest.approx(0.5, abs=0.05)


def test_what_is_surely_slower_is_no_alternative_to_a_point_that_may_be_less_accurate():
    places = front_places(state_of((0.700, 300.0), (0.705, 200.0), (0.704, 199.8)))
    slow, fast = places
    assert (slow.point.trial_id, fast.point.trial_id) == ("t0002", "t0001")
    assert [trial.trial_id for trial in slow.alternatives] == ["t0003"]
    assert fast.alternatives == ()
    assert fast.together == pytest.approx(fast.probability)
    assert ([trial.trial_id for trial in slow.superior], fast.superior) == (["t0001"], ())


def test_a_point_that_may_be_no_better_than_a_surely_faster_one_is_told():
    run = Run(Path(), state_of((0.700, 300.0), (0.705, 200.0)))
    slow, fast = run.front_places
    odds = f"{slow.probability:.0%}"
    assert slow.probability < 0.9
    assert perhaps_no_better(fast) == ""
    assert perhaps_no_better(slow) == (
        f"t0002 may be no better than t0001 in any objective; it is on the front with a probability of {odds}."
    )
    assert doubts_about(run, slow.point) == [perhaps_no_better(slow)]
    assert "t0002 may be no better than t0001" in " ".join(" ".join(front_section(run)).split())


def test_a_point_that_is_surely_better_somewhere_is_in_no_doubt():
    run = Run(Path(), state_of((0.700, 300.0), (0.9, 200.0)))
    assert [(place.superior, perhaps_no_better(place)) for place in run.front_places] == [((), ""), ((), "")]


def test_two_points_of_the_front_that_cannot_be_told_apart_are_alternatives_of_each_other():
    """Which was more accurate, and which faster, may be chance."""
    state = state_of((0.700, 299.0), (0.698, 300.0), (0.2, 100.0))
    accurate, fast = front_places(state)
    assert (accurate.point.trial_id, fast.point.trial_id) == ("t0001", "t0002")
    assert ([t.trial_id for t in accurate.alternatives], [t.trial_id for t in fast.alternatives]) == (
        ["t0002"],
        ["t0001"],
    )
    assert accurate.probability < 0.9
    assert accurate.together == 1.0


def test_without_a_trial_there_is_no_place():
    assert front_places(state_of()) == []


def test_a_place_is_told_in_words_and_in_the_table(tmp_path):
    run = Run(tmp_path, state_of((0.700, 300.0), (0.699, 299.9)))
    (place,) = run.front_places
    other = f"{run.front_probabilities['t0002']:.0%}"
    assert not_told_apart(run, place) == (
        f"t0001 cannot be told apart from t0002 ({other}); at least one of the two is on the front with a probability "
        "of 100%."
    )
    both = Run(tmp_path, state_of((0.700, 299.0), (0.698, 300.0)))
    assert " ".join(" ".join(front_section(both)).split()).count("cannot be told apart") == 1
    (row,) = run.front.to_dict("records")
    assert row["alternatives"] == "t0002"
    assert row["place_probability"] == 1.0
    assert "place_probability" in describe_columns(run.front.columns, run.info.trainable, run.info.metrics)
