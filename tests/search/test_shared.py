"""Trials that differ only in settings without effect on a metric share its measurements."""

import itertools
import math
import random

import numpy as np
import pytest

from search.front.affects import without_effect
from search.front.front_probability import front_draws
from search.front.intervals import merge_repeats
from search.front.shared import shared_metrics
from search.record.run_state import RunState
from tests.search.runs import INFO, Recorder, config, interval, typed

RATE, ACCURACY = "images_per_second", "val_accuracy"


def test_rates_of_trials_with_other_learning_rates_are_one_rate_and_more_precise():
    recorder = Recorder()
    recorder.complete("t0001", [0.5], 1700.0, config(128, 0.200))
    recorder.complete("t0002", [0.6], 1592.0, config(128, 0.198))
    run_state = RunState(typed(recorder.events))
    first, second = run_state.trials.values()
    assert first.rate == second.rate == pytest.approx(1645.1, rel=1e-3)
    assert first.own_metrics[RATE] == 1700.0
    assert [trial.trial_id for trial in run_state.front()] == ["t0002"]


def test_a_probe_of_the_same_settings_counts_and_a_repeat_too():
    recorder = Recorder(space={**INFO["space"], "evaluation": "decoupled"})
    recorder.start("p0001", "probe", **config(128, 0.1))
    recorder.measure("p0001", 0, **interval(300.0, 3.0))
    recorder.finish("p0001")
    recorder.complete("t0001", [0.5], 320.0, config(128, 0.2))
    recorder.add("repeat", trial_id="t0001", metrics=interval(310.0, 3.0))
    run_state = RunState(typed(recorder.events))
    assert run_state.trials["p0001"].rate == run_state.trials["t0001"].rate == pytest.approx(309.9, rel=1e-3)


def test_the_rates_of_trainings_with_other_seeds_count():
    recorder = Recorder()
    recorder.complete("t0001", [0.5], 48.0, config(128, 0.2))
    for seed, rate in ((1, 194.0), (2, 190.0)):
        recorder.add("again", trial_id="t0001", seed=seed, metrics={ACCURACY: 0.5, **interval(rate, 1.0)})
    assert RunState(typed(recorder.events)).trials["t0001"].rate > 60.0


def test_the_rate_of_a_training_too_short_to_measure_it_is_that_of_its_probe():
    recorder = Recorder(space={**INFO["space"], "evaluation": "decoupled"})
    recorder.start("p0001", "probe", **config(128, 0.1))
    recorder.measure("p0001", 0, **interval(300.0, 3.0))
    recorder.finish("p0001")
    for trial_id, rate in (("t0001", 0.1), ("t0002", 0.2)):
        recorder.start(trial_id, **config(128, rate))
        recorder.measure(trial_id, 1, val_accuracy=rate)
        recorder.finish(trial_id)
    assert [trial.trial_id for trial in RunState(typed(recorder.events)).front()] == ["t0002"]


def test_accuracies_of_trials_with_other_loaders_are_one_accuracy_at_the_same_epoch():
    recorder = Recorder()
    for trial_id, workers, accuracies in (("t0001", 0, [0.5, 0.6]), ("t0002", 2, [0.5, 0.64]), ("t0003", 1, [0.4])):
        recorder.complete(trial_id, accuracies, 100.0 + workers, config(loader="workers", num_workers=workers))
    first, second, short = RunState(typed(recorder.events)).trials.values()
    assert first.metrics[ACCURACY] == second.metrics[ACCURACY] == pytest.approx(0.62)
    assert short.metrics[ACCURACY] == pytest.approx((0.5 + 0.5 + 0.4) / 3)
    assert first.metrics[RATE] != second.metrics[RATE]


def test_means_over_the_same_samples_are_not_more_precise_together():
    learned = shared_metrics("vgg19_cifar10", {}, [ACCURACY], [])[1]
    one, other = ({ACCURACY: x, f"{ACCURACY}_low": x - 0.01, f"{ACCURACY}_high": x + 0.01} for x in (0.6, 0.62))
    assert learned.merge([one, other]) == pytest.approx(
        {ACCURACY: 0.61, f"{ACCURACY}_low": 0.60, f"{ACCURACY}_high": 0.62}
    )


def test_contended_rates_count_only_where_there_are_no_others():
    probed = shared_metrics("vgg19_cifar10", {}, [RATE], [])[0]
    quiet, disturbed = interval(200.0, 2.0), {**interval(100.0, 1.0), "contended": 1.0}
    assert probed.merge([quiet, disturbed])[RATE] == pytest.approx(200.0)
    assert probed.merge([quiet, disturbed])["contended"] == 0.0
    too_short = {"images_per_second": 50.0, "contended": 0.0, "throughput_windows": 0.0}
    assert probed.merge([quiet, too_short])["images_per_second"] == pytest.approx(200.0, rel=0.01)
    assert probed.merge([disturbed, too_short])["images_per_second"] == pytest.approx(100.0, rel=0.01)
    assert probed.merge([disturbed, disturbed])[RATE] == pytest.approx(100.0)


def test_a_trial_that_ended_before_a_rate_was_measured_says_nothing_of_rates():
    recorder = Recorder()
    for trial_id, rate in (("t0001", 100.0), ("t0002", 120.0)):
        recorder.start(trial_id, **config(128, rate / 1000))
        recorder.measure(trial_id, 1, val_accuracy=0.5, throughput_windows=2.0, contended=1.0, **interval(rate, 5.0))
        recorder.finish(trial_id)
    recorder.start("t0003", **config(128, 0.3))
    recorder.measure("t0003", 1, val_accuracy=0.5)
    recorder.finish("t0003", "stopped")
    trials = RunState(typed(recorder.events)).trials
    assert trials["t0001"].rate == trials["t0002"].rate == pytest.approx(111.4, rel=1e-3)
    assert trials["t0001"].metrics["contended"] == 1.0


def test_an_epoch_of_a_longer_training_is_no_end_of_a_shorter_one():
    """Where budget.epochs was raised, also for a trial that was running then."""
    recorder = Recorder(budget={"trials": 9, "epochs": 2})
    recorder.complete("t0001", [0.3, 0.4], 100.0, config(128, 0.2))
    recorder.start("t0002", **config(128, 0.2, num_workers=1))
    recorder.add("resume", budget={"trials": 9, "epochs": 4}, command=[])
    recorder.complete("t0003", [0.1, 0.2], 100.0, config(128, 0.2, num_workers=2))
    recorder.measure("t0002", 1, val_accuracy=0.1)
    recorder.measure("t0002", 2, val_accuracy=0.2)
    trials = RunState(typed(recorder.events)).trials
    assert [trial.metrics[ACCURACY] for trial in trials.values()] == [0.4, 0.2, 0.2]


@pytest.mark.parametrize("name", ["seconds_to_val_accuracy_0.9", "training_seconds"])
def test_the_time_of_a_training_is_not_shared_and_every_setting_can_change_it(name):
    probed, learned = shared_metrics("vgg19_cifar10", {}, [ACCURACY, name], [ACCURACY, name])
    assert name not in (*probed.names, *learned.names)
    assert ACCURACY in learned.names
    assert without_effect("vgg19_cifar10", {}, name) == set()
    assert "loader" in without_effect("vgg19_cifar10", {}, ACCURACY)


def test_a_failed_trial_shares_nothing():
    recorder = Recorder()
    recorder.complete("t0001", [0.5], 300.0, config(128, 0.1))
    recorder.start("t0002", **config(128, 0.2))
    recorder.measure("t0002", 1, val_accuracy=0.1, **interval(10.0, 0.1))
    recorder.finish("t0002", "failed", "the loss is not finite")
    assert RunState(typed(recorder.events)).trials["t0001"].rate == 300.0


def test_turns_keep_the_rates_of_groups_whose_first_trials_failed():
    def rates(failed):
        recorder = Recorder()
        for number, batch_size in enumerate((64, 128)[:failed], start=1):
            recorder.start(f"t000{number}", **config(batch_size, 0.9))
            recorder.finish(f"t000{number}", "failed", "the loss is not finite")
        for number, batch_size in enumerate((64, 128), start=3):
            recorder.complete(f"t000{number}", [0.5], 1900.0 + 100 * number, config(batch_size, 0.1))
        for number in range(8):
            recorder.add("turn", trial_id="t0003", other="t0004", rates=[2200.0 + number, 2300.0])
        return [trial.rate for trial in RunState(typed(recorder.events)).trials.values() if trial.state != "failed"]

    assert rates(failed=2) == rates(failed=1) == pytest.approx(rates(failed=0))


def test_turns_of_a_run_without_a_rate_are_left_out():
    recorder = Recorder(metrics={"val_accuracy": ""})
    for number in (1, 2):
        recorder.start(f"t000{number}", **config(64 * number, 0.1))
    recorder.add("turn", trial_id="t0001", other="t0002", rates=[1.0, 2.0])
    assert math.isnan(RunState(typed(recorder.events)).trials["t0001"].rate)


def test_a_snapshot_does_not_change_with_the_run():
    recorder = Recorder()
    recorder.complete("t0001", [0.5], 300.0, config(128, 0.1))
    run_state = RunState(typed(recorder.events))
    snapshot, before = run_state.snapshot(), len(recorder.events)
    recorder.complete("t0002", [0.6], 320.0, config(128, 0.2))
    for event in typed(recorder.events[before:]):
        run_state.apply(event)
    assert run_state.trials["t0001"].rate == pytest.approx(309.8, rel=1e-3)
    assert snapshot.trials["t0001"].rate == 300.0


@pytest.mark.parametrize("seed", range(20))
def test_no_front_holds_two_points_whose_rates_differ_by_noise_alone(seed):
    """Random journals: the same settings that affect the rate, other learning rates, noisy measurements."""
    draw, recorder = random.Random(seed), Recorder(constraints=[])
    for number in range(40):
        size, precision = draw.choice([64, 128, 256]), draw.choice(["fp32", "bf16"])
        chosen = config(size, 10 ** draw.uniform(-3, 0), precision=precision)
        rate = size * (2 if precision == "bf16" else 1) * draw.gauss(1.0, 0.2)
        recorder.complete(f"t{number:04d}", [draw.random()], rate, chosen)
    front = RunState(typed(recorder.events)).front()
    rates = [(trial.config["batch_size"], trial.config["precision"]) for trial in front]
    assert len(set(rates)) == len(rates)
    for one, other in itertools.combinations(front, 2):
        assert (one.metrics[ACCURACY] - other.metrics[ACCURACY]) * (one.rate - other.rate) < 0


def test_an_error_that_two_points_share_does_not_decide_between_them():
    """The rates of the first two are one rate: the more accurate of them is certain to be before the other."""
    losses, deviations = np.array([[1.0, 5.0], [2.0, 5.0]]), np.array([[0.0, 3.0], [0.0, 3.0]])
    alone = front_draws(losses, deviations).mean(axis=0)
    together = front_draws(losses, deviations, lambda points, rng: np.full((2, 2), rng.standard_normal())).mean(axis=0)
    assert alone[1] == pytest.approx(0.5, abs=0.05)
    assert together.tolist() == [1.0, 0.0]


def test_a_rate_without_an_interval_has_a_question_mark_where_rates_have_intervals():
    recorder = Recorder(metrics={**INFO["metrics"], f"{RATE}_low": "images/s", f"{RATE}_high": "images/s"})
    recorder.complete("t0001", [0.5], 1700.0, config(128, 0.2))
    recorder.start("t0002", **config(256, 0.2))
    recorder.measure("t0002", 1, val_accuracy=0.5, images_per_second=1800.0)
    recorder.finish("t0002")
    run_state = RunState(typed(recorder.events))
    texts = [run_state.format_metric(trial, RATE) for trial in run_state.trials.values()]
    assert texts[0].startswith("1,700 ± ")
    assert texts[1] == "1,800 ± ?"


def test_a_resume_does_not_move_a_trial_that_never_ended_in_its_group():
    recorder = Recorder()
    recorder.start("t0001", **config(64, 0.1))
    recorder.measure("t0001", 1, val_accuracy=0.1, **interval(290.0, 2.0))
    for trial_id, size in (("t0002", 64), ("t0003", 128)):
        recorder.complete(trial_id, [0.5], 300.0, config(size, 0.2))
    recorder.add("turn", trial_id="t0002", other="t0003", rates=[290.0, 300.0])
    recorder.add("resume", command=[])
    state = RunState(typed(recorder.events))
    assert state.trials["t0002"].source(RATE) == "t0001"
    assert state.num_rounds(state.trials["t0002"], state.trials["t0003"]) == 1


def test_repeats_with_intervals_replace_a_measurement_without_one():
    merged = merge_repeats({RATE: 300.0}, [interval(310.0, 1.0), interval(311.0, 1.0)])
    assert merged[RATE] == pytest.approx(310.5, rel=1e-4)
    assert merged[f"{RATE}_low"] < 310.5 < merged[f"{RATE}_high"]


def test_an_accuracy_in_percent_is_no_fraction():
    recorder = Recorder(metrics={})
    recorder.complete("t0001", [71.2], 300.0, config(64))
    assert not RunState(typed(recorder.events)).is_fraction(ACCURACY)


def test_a_point_whose_memory_differs_between_probes_is_on_the_front_with_a_probability():
    goals = [INFO["objectives"][0], {"metric": "peak_memory_gib", "goal": "minimize"}]
    recorder = Recorder(objectives=goals, constraints=[])
    for trial_id, size, memory, again in (("t0001", 64, 1.16, 1.44), ("t0002", 128, 1.28, 1.28)):
        recorder.start(trial_id, **config(size))
        recorder.measure(trial_id, 1, val_accuracy=0.5, peak_memory_gib=memory)
        recorder.finish(trial_id)
        recorder.add("repeat", trial_id=trial_id, metrics={"peak_memory_gib": again})
    run_state = RunState(typed(recorder.events))
    first = run_state.trials["t0001"]
    assert run_state.format_metric(first, "peak_memory_gib") == "1.30 ± 0.27"
    assert 0.2 < run_state.front_probabilities()["t0001"] < 0.8
