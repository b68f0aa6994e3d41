"""What a run may take, of configurations that claim to be as fast as the test says."""

import math

import pytest

from search.space.parsing import parse_space
from search.study.run_estimate import PROBE_SECONDS, START_SECONDS, TRIAL_OVERHEAD_SECONDS, _epochs, estimate, samples
from trainables import replay
from trainables.contract import Cost, Data, InfeasibleError

DATA = Data(val_images=0)


def space_of(**changed):
    mapping = {
        "trainable": "replay",
        "objectives": [
            {"metric": "val_accuracy", "goal": "maximize"},
            {"metric": "images_per_second", "goal": "maximize", "probed": True},
        ],
        "parameters": {
            "batch_size": {"values": [64, 256, 1024]},
            "learning_rate": {"min": 0.01, "max": 0.1, "log": True},
        },
        "fixed": {"seconds_per_epoch": 2.0},
        "stopping": {"name": "none"},
        "budget": {"trials": 5, "epochs": 3, "repeats": 0},
    }
    return parse_space({**mapping, **changed})


@pytest.fixture
def pictures(monkeypatch):
    """The batch sizes that are timed; of the 2,000 pictures of an epoch ten a second for each one in the batch."""
    asked = []

    def timed(config, data):
        asked.append(config["batch_size"])
        return Cost(10.0 * config["batch_size"], samples_per_epoch=2000, checkpoint_bytes=2**30)

    monkeypatch.setattr(replay, "estimate", timed)
    return asked


def test_time_is_from_all_trials_as_fast_as_the_fastest_to_all_as_slow_as_the_slowest(pictures):
    overhead = START_SECONDS + 5 * TRIAL_OVERHEAD_SECONDS
    found = estimate(space_of(), DATA)
    assert found.seconds == pytest.approx((overhead + 15 * 2000 / 10240, overhead + 15 * 2000 / 640))
    assert pictures == [256, 64, 1024]


def test_validation_is_a_third_of_the_work_of_training(pictures):
    alone, validated = (estimate(space_of(), Data(val_images=n)).seconds[1] for n in (0, 6000))
    assert validated - alone == pytest.approx(15 * 2000 / 640)


def test_trials_together_take_their_part_of_the_time(pictures):
    alone, together = (estimate(space_of(concurrent_trials=n), DATA).seconds[1] for n in (1, 3))
    assert together < alone
    assert together > START_SECONDS


def test_hours_are_the_most_and_without_a_number_of_trials_say_how_many_fit(pictures):
    many = estimate(space_of(budget={"trials": 5000, "hours": 0.1, "epochs": 1}), DATA)
    repeats = PROBE_SECONDS[0], 10 * PROBE_SECONDS[1]  # of one point or many, after the hours
    assert many.seconds == (360.0 + repeats[0], 360.0 + repeats[1])
    assert many.epochs == (math.ceil(360 / (2000 / 640)), math.ceil(360 / (2000 / 10240)))
    found = estimate(space_of(budget={"hours": 0.1, "epochs": 3}), DATA)
    assert found.seconds == many.seconds
    assert found.trials == (360 // (3 * 2000 / 640 + TRIAL_OVERHEAD_SECONDS), 360 // (0.2 + 3 * 2000 / 10240))


def test_a_training_without_samples_has_an_estimate():
    assert estimate(space_of(budget={"trials": 4, "hours": 1.0, "epochs": 3}), DATA).epochs == (12, 12)


def test_no_more_trials_are_expected_than_there_are_configurations(pictures):
    few = {"batch_size": {"values": [64, 1024]}}
    assert estimate(space_of(parameters=few), DATA).epochs == (6, 6)
    assert estimate(space_of(parameters=few, budget={"hours": 1, "epochs": 1}), DATA).trials == (2, 2)


def test_trials_that_may_be_stopped_have_an_epoch_each_at_least_and_one_has_all(pictures):
    assert estimate(space_of(), DATA).epochs == (15, 15)
    assert estimate(space_of(stopping={"name": "forecast"}), DATA).epochs == (3 + 4, 15)
    long = space_of(stopping={"name": "forecast"}, budget={"trials": 5, "epochs": 50})
    assert _epochs(long) == (50 + 4 * 5, 250)  # forecasts judge after a tenth of the length at first
    budget = {"trials": 5, "epochs": 3, "total_epochs": 9}
    assert estimate(space_of(budget=budget), DATA).epochs == (9, 9)
    assert estimate(space_of(budget={"hours": 1.0}), DATA).epochs is None


def test_what_bears_on_the_rate_alone_is_probed_once_at_least_and_in_every_setting_at_most(pictures):
    parameters = {
        "batch_size": {"values": [64, 256]},
        "loader": {"values": ["workers", "memory"], "affects": "probed"},
        "num_workers": {"values": [0, 1, 2], "when": {"loader": "workers"}, "affects": "probed"},
        "learning_rate": {"min": 0.01, "max": 0.1, "affects": "trained"},
    }
    assert estimate(space_of(parameters=parameters), DATA).probes is None
    coupled = estimate(space_of(parameters=parameters), DATA).seconds
    found = estimate(space_of(parameters=parameters, evaluation="decoupled"), DATA)
    assert found.probes == (1, 2 * (3 + 1))
    assert found.seconds == pytest.approx((coupled[0] + 2.0, coupled[1] + 80.0))


def test_the_front_is_measured_again_at_the_end(pictures):
    without = estimate(space_of(), DATA).seconds
    found = estimate(space_of(budget={"trials": 5, "epochs": 3, "repeats": 2}), DATA).seconds
    assert (found[0] - without[0], found[1] - without[1]) == pytest.approx((2 * 2.0, 2 * 5 * 10.0))


def test_disk_is_for_the_largest_checkpoints_of_a_front_and_of_what_runs(pictures):
    assert estimate(space_of(), DATA).disk_gib == 5 + 1


def test_what_cannot_run_is_left_out_of_the_range_with_its_reason(monkeypatch, pictures):
    before = replay.estimate

    def timed(config, data):
        if config["batch_size"] == 64:
            raise InfeasibleError("too small")
        return before(config, data)

    monkeypatch.setattr(replay, "estimate", timed)
    found = estimate(space_of(), DATA)
    assert [each.why_not for each in found.timed] == [None, "too small", None]
    assert found.seconds[1] == pytest.approx(START_SECONDS + 1.0 + 15 * 2000 / 2560)
    assert estimate(space_of(parameters={"batch_size": {"values": [64]}}), DATA).seconds is None


def test_timing_takes_a_moment_only(pictures):
    now = iter(range(0, 1000, 4))  # each look at the clock is 4 s later
    assert len(estimate(space_of(), DATA, clock=lambda: float(next(now))).timed) == 1 + 1


def test_samples_are_the_middle_and_both_ends_with_what_is_in_play_and_none_twice():
    parameters = {
        "batch_size": {"values": [256, 64, 1024]},
        "rate": {"min": 0.01, "max": 1.0, "log": True},
        "loader": {"values": ["workers", "memory"]},
        "num_workers": {"values": [0, 1], "when": {"loader": "workers"}},
    }
    found = list(samples(space_of(parameters=parameters, fixed={"width": 2.0})))
    assert found == [
        {"width": 2.0, "batch_size": 256, "rate": pytest.approx(0.1), "loader": "memory"},
        {"width": 2.0, "batch_size": 64, "rate": 0.01, "loader": "workers", "num_workers": 0},
        {"width": 2.0, "batch_size": 1024, "rate": pytest.approx(1.0), "loader": "memory"},
    ]
    assert len(list(samples(space_of(parameters={"batch_size": {"values": [64]}})))) == 1


def test_a_run_of_probes_takes_at_most_what_they_take():
    objectives = [
        {"metric": "images_per_second", "goal": "maximize"},
        {"metric": "peak_memory_fraction", "goal": "minimize"},
    ]
    found = estimate(space_of(evaluation="probe", objectives=objectives, budget={"trials": 4}), DATA)
    assert found.timed == ()
    assert found.seconds[1] == pytest.approx(START_SECONDS + 4 * (10.0 + TRIAL_OVERHEAD_SECONDS))


def test_what_other_processes_use_during_the_timing_is_in_the_estimate(pictures, monkeypatch):
    monkeypatch.setattr("search.study.run_estimate.CoresOfOthers", lambda: lambda: 1.5)
    assert estimate(space_of(), DATA).cores_of_others == 1.5
