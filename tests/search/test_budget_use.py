import pytest

from search.record.budget_use import budget_use
from search.record.run_state import RunState
from tests.search.page_runs import GPU
from tests.search.runs import INFO, STARTED_AT, Recorder, config, typed


def budget(**limits):
    return {"trials": None, "epochs": 3, "hours": None, "total_epochs": None, **limits}


def two_trials(**limits):
    """Two trials of three epochs and 62 s each, one after another."""
    recorder = Recorder(budget=budget(**limits))
    recorder.complete("t0001", [0.1, 0.2, 0.3], 100.0, config())
    recorder.complete("t0002", [0.1, 0.2, 0.3], 100.0, config())
    return recorder


@pytest.mark.parametrize(
    ("limits", "text", "seconds_left"),
    [
        ({"trials": 10}, "2 of 10 trials", 8 * 61.5),
        ({"total_epochs": 30}, "6 of 30 epochs", 8 * 61.5),
        ({"hours": 0.1}, "2 trials, 2 min 4 s of 6 min", 236.0),
        ({"trials": 10, "hours": 10.0}, "2 of 10 trials", 8 * 61.5),
        ({"trials": 10, "hours": 0.1}, "2 trials, 2 min 4 s of 6 min", 236.0),
        ({"trials": 2}, "2 of 2 trials", 0.0),
    ],
)
def test_time_left_is_that_of_the_budget_that_ends_first_at_the_pace_so_far(limits, text, seconds_left):
    recorder = two_trials(**limits)
    found = budget_use(RunState(typed(recorder.events)), recorder.now)
    assert (found.text, found.seconds_left) == (text, pytest.approx(seconds_left))


def test_nothing_is_left_of_the_budget_once_the_front_is_measured():
    recorder = two_trials(hours=1.0)
    recorder.add("repeat", 5.0, trial_id="t0001", metrics={"images_per_second": 100.0})
    assert budget_use(RunState(typed(recorder.events)), recorder.now).seconds_left == 0.0


def test_gpu_hours_are_left_at_the_pace_of_the_trials_that_hold_gpus():
    recorder = Recorder(budget=budget(gpu_hours=1.0), machine={**INFO["machine"], "gpus": [GPU] * 2})
    recorder.complete("t0001", [0.1, 0.2, 0.3], 100.0, config())
    found = budget_use(RunState(typed(recorder.events)), recorder.now)
    assert found.text == "1 trial, 0.0333 of 1 GPU hours"
    assert found.seconds_left == pytest.approx(29 * 61.0)


def test_a_trial_under_way_counts_by_its_epochs():
    recorder = Recorder(budget=budget(trials=10))
    recorder.start("t0001", **config())
    recorder.measure("t0001", 1, val_accuracy=0.1)
    found = budget_use(RunState(typed(recorder.events)), recorder.now)
    assert found.fraction == pytest.approx(1 / 30)
    assert found.seconds_left == pytest.approx(20.0 * 29)


def test_nothing_is_said_of_time_while_there_is_nothing_to_judge_by():
    assert budget_use(RunState(typed(Recorder(budget=budget(trials=10)).events)), STARTED_AT + 5) is None


def test_a_resume_that_extends_the_budget_is_measured_by_the_new_one():
    recorder = two_trials(trials=2)
    recorder.add("resume", 1000.0, budget=budget(trials=4))
    assert budget_use(RunState(typed(recorder.events)), recorder.now).text == "2 of 4 trials"


@pytest.mark.parametrize("gap", [0.0, 3600.0, -3600.0])
def test_the_time_between_two_processes_before_the_first_trial_is_none_of_the_pace(gap):
    recorder = Recorder(budget=budget(trials=4))
    recorder.now += gap
    recorder.add("resume", budget=budget(trials=4), command=[])
    for trial_id in ("t0001", "t0002"):
        recorder.complete(trial_id, [0.1, 0.2, 0.3], 100.0, config())
    found = budget_use(RunState(typed(recorder.events)), recorder.now)
    alone = budget_use(RunState(typed(two_trials(trials=4).events)), two_trials(trials=4).now)
    assert found.seconds_left == pytest.approx(alone.seconds_left, abs=10)


@pytest.mark.parametrize("limits", [{"trials": 10}, {"total_epochs": 30}])
def test_probes_that_prepare_the_first_trial_are_not_expected_before_each(limits):
    recorder = Recorder(budget=budget(**limits))
    for number in range(1, 9):
        recorder.start(f"p{number:04d}", "probe", **config())
        recorder.measure(f"p{number:04d}", 0, images_per_second=400.0)
        recorder.finish(f"p{number:04d}", seconds=20.0)
    recorder.complete("t0001", [0.1, 0.2, 0.3], 100.0, config())
    found = budget_use(RunState(typed(recorder.events)), recorder.now)
    assert found.seconds_left == pytest.approx(9 * 61.0, rel=0.1)


def test_a_grid_ends_when_it_is_through():
    space = {**INFO["space"], "evaluation": "probe"}
    recorder = Recorder(space=space, budget=budget(epochs=1), grid_points=8)
    recorder.start("t0001", "probe", **config())
    recorder.measure("t0001", 0, images_per_second=400.0)
    recorder.finish("t0001", seconds=8.0)
    found = budget_use(RunState(typed(recorder.events)), recorder.now)
    assert (found.text, found.seconds_left) == ("1 of 8 trials", pytest.approx(7 * 21.0))


def test_a_search_ends_when_all_configurations_are_tried():
    recorder = Recorder(budget=budget(trials=100), num_configs=2)
    recorder.start("t0001", **config())
    recorder.finish("t0001", seconds=8.0)
    found = budget_use(RunState(typed(recorder.events)), recorder.now)
    assert (found.text, found.fraction) == ("1 of 2 trials", 0.5)
