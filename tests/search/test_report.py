import math
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from search.page.prose import prose
from search.record.run_lock import lock_run
from search.report.command import command
from search.report.picks import picks
from search.report.report import closing_lines, write_summary
from search.results import load
from search.text.configurations import format_setting
from search.text.numbers import plus_minus
from tests.search.runs import INFO, Recorder, config, interval, story, write_run
from tests.trainables.own_files import written

GENERATED = {"name": "generated", "description": "generated: 2,000 pictures to train on, 500 to validate"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Path("results/throughput-2026-11-20-1")


def summary(folder, events):
    return write_summary(load(write_run(folder, events)))


def flat(text):
    """Without line breaks, so that a sentence can be looked for wherever it was wrapped."""
    return " ".join(text.split())


def table_lines(text):
    return [line for line in text.splitlines() if line.startswith("|")]


def test_picks_are_the_ends_of_the_front_and_its_knee(folder):
    run = load(write_run(folder, story()))
    assert [(pick.name, pick.trial.trial_id) for pick in picks(run)] == [
        ("most accurate", "t0003"),
        ("knee", "t0007"),
        ("fastest", "t0011"),
    ]


def test_the_front_is_a_table_with_its_goals_spreads_and_what_varies_on_it(folder):
    text = summary(folder, story())
    front = "\n".join(table_lines(text.split("## Picks")[0]))
    for heading in ("val_accuracy (↑)", "images_per_second (↑)", "test_accuracy", "batch_size", "learning_rate"):
        assert heading in front
    assert "352 ± 4 " in front
    assert "0.7000 ± 0.013 " in front  # as everywhere else: binomial, of 5,000 pictures
    assert "strategy" not in front  # the same on all of the front, and said so below
    assert "The same for all of them: loader=memory, strategy=single, optimizer=sgd" in flat(text)


def test_objectives_to_minimize_are_marked_so(folder):
    recorder = Recorder(objectives=[INFO["objectives"][0], {"metric": "peak_memory_fraction", "goal": "minimize"}])
    recorder.complete("t0001", [0.5], 100.0, config())
    text = summary(folder, recorder.events)
    assert "peak_memory_fraction (↓)" in text
    assert "↑: higher is better. ↓: lower is better." in flat(text)
    assert "best peak_memory_fraction" in text


def test_the_summary_fits_a_terminal(folder):
    long_reason = "no space left: " + "many words " * 40
    events = story()
    events.insert(-1, {**events[-3], "event": "finish", "trial_id": "t0012", "state": "failed", "reason": long_reason})
    for told in (events, story(data=GENERATED)):
        assert max(map(len, summary(folder, told).splitlines())) <= 80


def test_a_front_on_which_much_varies_becomes_several_tables_with_the_trials_in_each(folder):
    recorder = Recorder()
    for number in (1, 2):
        settings = {f"parameter_number_{letter}": number for letter in "abcdefgh"}
        recorder.complete(f"t{number:04d}", [number / 10], 300.0 - number, config(**settings))
    tables = table_lines(summary(folder, recorder.events).split("## Picks")[0])
    assert max(map(len, tables)) <= 80
    assert sum(line.startswith("| t0001 ") for line in tables) == 4


def test_every_pick_says_why_and_how_to_run_it(folder):
    text = flat(summary(folder, story()).split("## Picks")[1].split("## Trials")[0])
    assert "best val_accuracy of the 5 trials compared" in text
    assert (
        "Against the knee: val_accuracy 1.00 points higher (0.79 lower to 2.79 higher), "
        "0.51 (0.50 to 0.52) times its images_per_second." in text
    )
    assert text.count("python -m trainables.train --trainable vgg19_cifar10 --epochs 3 --data cifar10") == 3
    assert "TRAINING_SEARCH_DATA" in text
    assert "python -m search.train results/throughput-2026-11-20-1 --trial t0007" in text
    assert "python -m search.pick results/throughput-2026-11-20-1 --accuracy-within 0.005" in text


def test_the_usual_places_of_data_are_named_where_the_space_names_no_folder(folder):
    space = {**INFO["space"], "data": {**INFO["space"]["data"], "root": "/data/flowers"}}
    text = flat(summary(folder, story(space=space)).split("## Picks")[1].split("## Trials")[0])
    assert "TRAINING_SEARCH_DATA" not in text
    assert "`--root DIR` names other data." in text


def test_picks_are_compared_with_the_baseline_and_what_was_known_before_is_told(folder):
    events = story(space={**INFO["space"], "baseline": config(64, 0.0478623)})
    measured = {"val_accuracy": 0.7}
    known = [{"config": {}, "metrics": measured, "source": f"before t000{i}"} for i in (1, 2)]
    known.append({"config": {}, "metrics": {}, "elsewhere": measured, "source": "other t0001"})
    events.insert(1, {"event": "known", "time": events[0]["time"], "measurements": known})
    text = flat(summary(folder, events))
    assert "Against the baseline, t0001: val_accuracy 19.00 points higher (17.13 to 20.87), 0.60 (0.59 to 0.61)" in text
    assert "Known before: 2 measurements of before" in text
    assert "Known of other conditions: 1 measurement of other" in text


def test_a_spread_as_large_as_its_value_is_a_question_mark():
    assert plus_minus(3217.0, 11853.0) == "3,217 ± ?"
    assert plus_minus(3217.0, 185.0) == "3,217 ± 185"
    assert plus_minus(3217.0, None) == "3,217"
    assert plus_minus(0.0, math.inf) == "0 ± ?"
    assert plus_minus(-0.02, 0.05) == "-0.0200 ± 0.05"
    assert plus_minus(0.02, 0.05, least=-math.inf) == "0.0200 ± 0.05"


def test_a_question_mark_is_explained_in_the_section_that_has_it(folder):
    recorder = Recorder(constraints=[])
    recorder.complete("t0001", [0.5], 200.0, config(64))
    for trial_id, size, accuracy in (("t0002", 128, 0.4), ("t0003", 256, 0.3)):  # without an interval, dominated
        recorder.start(trial_id, **config(size))
        recorder.measure(trial_id, 1, val_accuracy=accuracy, images_per_second=150.0)
        recorder.finish(trial_id)
    section = summary(folder, recorder.events).partition("## Batch size")[2].partition("\n## ")[0]
    assert "150 ± ?" in section
    assert "A question mark: no interval is known" in section


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.9995, "0.9995"),
        (0.99951234567, "0.999512"),
        (1.0, "1"),
        (0.05, "0.05"),
        (0.04786230092322637, "0.0479"),
        (1e-05, "1e-05"),
        (1234.5, "1234.5"),
        (True, "true"),
        (12345678, "12345678"),
    ],
)
def test_a_setting_is_told_as_it_was_written_or_with_three_digits(value, text):
    assert format_setting(value) == text


def test_a_bar_in_a_value_starts_no_column(folder):
    recorder = Recorder()
    for number, value in enumerate(["crop|flip", "crop\nflip"], start=1):
        recorder.complete(f"t{number:04d}", [0.3 + number / 10], 100.0 / number, config(mixed=value))
    rows = [line for line in summary(folder, recorder.events).splitlines() if line.startswith("| t00")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {6}
    assert any(r"crop\|flip" in row for row in rows)
    assert "<td>crop|flip</td>" in prose(["| a | b |\n| --- | --- |\n" + r"| crop\|flip | 1 |"])


def test_seconds_to_an_accuracy_are_no_points(folder):
    recorder = Recorder(
        objectives=[{"metric": "seconds_to_val_accuracy_0.5", "goal": "minimize"}, INFO["objectives"][0]],
        metrics={"seconds_to_val_accuracy_0.5": "s", "val_accuracy": "percent"},
    )
    for number, (seconds, accuracy) in enumerate([(60.0, 71.0), (30.0, 58.0)], start=1):
        recorder.start(f"t{number:04d}", **config(64 * number))
        recorder.measure(f"t{number:04d}", 3, **{"seconds_to_val_accuracy_0.5": seconds, "val_accuracy": accuracy})
        recorder.finish(f"t{number:04d}")
    text = flat(summary(folder, recorder.events))
    assert "2.00 times its seconds_to_val_accuracy_0.5" in text
    assert "1.22 times its val_accuracy" in text
    assert "points" not in text


def test_an_example_of_a_requirement_names_a_metric_that_the_run_has(folder):
    recorder = Recorder(objectives=[INFO["objectives"][1], {"metric": "cost", "goal": "minimize"}], constraints=[])
    recorder.start("t0001", **config())
    recorder.measure("t0001", 3, images_per_second=100.0, cost=2.0)
    recorder.finish("t0001")
    assert "--within images_per_second=2" in summary(folder, recorder.events)


def test_a_baseline_that_is_a_pick_is_compared_once(folder):
    recorder = Recorder(space={**INFO["space"], "baseline": {"batch_size": 64}})
    recorder.complete("t0001", [0.7], 100.0, config(64))
    recorder.complete("t0002", [0.5], 200.0, config(256))
    text = flat(summary(folder, recorder.events))
    assert text.count("Against the most accurate and knee") + text.count("Against the most accurate, which is the") == 1
    assert "Against the baseline" not in text


def test_the_test_set_of_a_trial_with_several_seeds_is_that_of_the_first(folder):
    recorder = Recorder()
    recorder.complete("t0001", [0.5], 100.0, config())
    recorder.add("again", trial_id="t0001", seed=1, metrics={"val_accuracy": 0.7})
    recorder.add("test", trial_id="t0001", metrics={"test_accuracy": 0.49})
    text = flat(summary(folder, recorder.events))
    assert "val_accuracy 0.6000" in text
    assert "test_accuracy (first seed) 0.4900" in text


def test_a_run_of_probes_was_probed_and_its_commands_probe(folder):
    recorder = Recorder(space={**INFO["space"], "evaluation": "probe"}, constraints=[])
    recorder.start("t0001", "probe", **config())
    recorder.measure("t0001", 0, val_accuracy=0.5, images_per_second=100.0)
    recorder.finish("t0001")
    text = summary(folder, recorder.events)
    assert "Each configuration was probed once (n = 1)." in flat(text)
    assert "seeds" not in text
    assert "--probe" in text


def test_a_trial_that_was_under_way_when_the_run_ended_is_unfinished(folder):
    recorder = Recorder()
    recorder.start("t0001", **config())
    assert "| unfinished " in summary(folder, recorder.events)  # it was killed
    with lock_run(folder):
        assert "| running " in summary(folder, recorder.events)
        recorder.add("end", reason="interrupted by SIGINT")
        assert "| unfinished " in summary(folder, recorder.events)


def test_settings_at_the_end_of_what_was_searched_are_told(folder):
    recorder, rates = Recorder(), [("fp32", "memory", 0.5), ("bf16", "memory", 0.49), ("bf16", "workers", 0.495)]
    for number, (precision, loader, rate) in enumerate(rates, start=1):
        settings = config(512, rate, precision=precision, loader=loader)
        recorder.complete(f"t{number:04d}", [0.9 - 0.1 * number], 100.0 * number, settings)
    told = "All points of the front have nearly the largest batch_size (512) and the largest learning_rate (0.5)"
    assert told in flat(summary(folder, recorder.events))
    recorder.complete("t0004", [0.95], 50.0, config(256, 0.5))
    told = "have nearly the largest learning_rate (0.5) that was searched: better ones may lie beyond."
    assert told in flat(summary(folder, recorder.events))
    recorder.complete("t0005", [0.96], 40.0, config(128, 0.1))
    assert "that was searched" not in flat(summary(folder, recorder.events))


def test_a_setting_at_the_end_of_what_a_users_file_allows_is_not_told(folder):
    parameters = {"depth": {"values": [1, 2, 3]}, "hidden": {"values": [4, 8, 16]}}
    recorder = Recorder(trainable="../../rows.py", space={**INFO["space"], "parameters": parameters})
    for number in (1, 2):
        recorder.complete(f"t{number:04d}", [0.9 - 0.1 * number], 100.0 * number, {"depth": 1, "hidden": 4})
    (folder / "source").mkdir(parents=True)
    declared = ('{"hidden": 8', '{"depth": {"default": 2, "choices": [1, 2, 3]}, "hidden": 8')
    written(folder / "source", "rows.py", declared, ("def network(", "def network(depth, "))
    told = "have nearly the smallest hidden (4) that was searched"
    assert told in flat(summary(folder, recorder.events))


def test_a_pick_that_is_rather_not_on_the_front_says_so(folder, monkeypatch):
    run = load(write_run(folder, story()))
    assert "probability of 7% only" not in closing_lines(run)
    odds = dict.fromkeys(run.state.trials, 0.07)
    monkeypatch.setitem(vars(run), "front_probabilities", odds)
    assert "t0007 is on the front with a probability of 7% only." in closing_lines(run)
    assert "t0007 is on the front with a probability of 7% only." in flat(write_summary(run))


def test_the_file_with_a_traceback_is_named(folder):
    recorder = Recorder()
    recorder.start("t0001", **config())
    recorder.finish("t0001", "failed", "KeyError: 'missing' (mine.py:11)")
    assert "traceback" not in summary(folder, recorder.events)
    (folder / "trials" / "t0001").mkdir(parents=True)
    (folder / "trials" / "t0001" / "error-rank0.txt").write_text("Traceback")
    told = "KeyError: 'missing' (mine.py:11); traceback: trials/t0001/error-rank0.txt"
    assert told in flat(summary(folder, recorder.events))


def test_the_only_complete_trial_is_not_chosen(folder):
    recorder = Recorder()
    recorder.complete("t0001", [0.5], 100.0, config())
    assert "Nothing was chosen. A larger budget finds more." in flat(summary(folder, recorder.events))
    assert "nothing was chosen. A larger budget finds more." in flat(closing_lines(load(folder)))


def with_rates(*rates, **changed):
    """Events of equally accurate trials with these rates."""
    recorder = Recorder(**changed)
    for number, rate in enumerate(rates, start=1):
        recorder.complete(f"t{number:04d}", [0.5], rate, config(64 * number))
    return recorder.events


def test_which_constraint_leaves_no_front_is_told(folder):
    text = flat(summary(folder, with_rates(100.0, 900.0, constraints=["images_per_second >= 1000"])))
    assert "images_per_second >= 1000 is violated by 2 of 2 complete trials, least by t0002 with 900" in text


def test_a_target_that_was_not_reached_is_said(folder):
    metric = "seconds_to_val_accuracy_0.9"
    objectives = [{"metric": metric, "goal": "minimize"}, {"metric": "images_per_second", "goal": "maximize"}]
    limits = ["best_val_accuracy >= 0.9", "best_val_accuracy >= 0.97", "best_val_accuracy >= 0.99 * baseline"]
    recorder = Recorder(objectives=objectives, constraints=limits)
    for number, best in ((1, 0.95), (2, 0.5)):
        recorder.start(f"t{number:04d}", **config(64 * number))
        reached = {metric: 12.0, "best_val_accuracy": best}
        recorder.measure(f"t{number:04d}", 3, val_accuracy=best, **reached, **interval(300.0, 3.0))
        recorder.finish(f"t{number:04d}")
    state = load(write_run(folder, recorder.events)).state
    assert [state.format_metric(trial, metric) for trial in state.trials.values()] == ["12.0", "not reached in 12.0"]


@pytest.mark.parametrize(
    ("measured", "note"),
    [((), "no trial measured latency_ms"), ((1,), "1 of 2 trials did not measure latency_ms"), ((1, 2), "")],
)
def test_a_constraint_on_what_was_not_measured_is_told(folder, measured, note):
    recorder = Recorder(constraints=["latency_ms <= 5"])
    for number in (1, 2):
        recorder.start(f"t000{number}", **config(64 * number))
        found = {"latency_ms": 4.0} if number in measured else {}
        recorder.measure(f"t000{number}", 1, val_accuracy=0.5, images_per_second=100.0, **found)
        recorder.finish(f"t000{number}")
    text = flat(summary(folder, recorder.events))
    assert (f"latency_ms <= 5 ({note}, without which it is not judged)" in text) == bool(note)


def test_trials_that_violate_a_constraint_are_named(folder):
    text = flat(summary(folder, with_rates(150.0, 250.0, constraints=["images_per_second >= 200"])))
    assert "has fewer epochs than others. Violated: t0001 (images_per_second >= 200: 150)." in text


def test_a_constraint_relative_to_the_baseline_is_named_with_its_limit(folder):
    space = {**INFO["space"], "baseline": {"batch_size": 64}}
    events = with_rates(150.0, 100.0, constraints=["images_per_second >= 0.9 * baseline"], space=space)
    text = flat(summary(folder, events))
    assert "Violated: t0002 (images_per_second >= 0.9 * baseline: 100, at least 135)." in text


def test_a_baseline_that_violates_its_own_constraint_is_told(folder):
    goals = [{"metric": "val_elbo", "goal": "maximize"}, INFO["objectives"][1]]
    space = {**INFO["space"], "baseline": {"batch_size": 64}}
    recorder = Recorder(objectives=goals, constraints=["val_elbo >= 0.9 * baseline"], space=space)
    recorder.start("t0001", **config(64))
    recorder.measure("t0001", 1, val_elbo=-10.0, images_per_second=100.0)
    recorder.finish("t0001")
    assert "val_elbo >= 0.9 * baseline is violated by 1 of 1 complete trial, least by t0001" in flat(
        summary(folder, recorder.events)
    )


def test_no_rate_of_a_reference_point_is_below_zero(folder):
    recorder = Recorder()
    for number, rate in ((1, 10.0), (2, 100_000.0)):
        recorder.complete(f"t{number:04d}", [0.5 / number], rate, config(64 * number))
    volume, (accuracy, rate) = load(write_run(folder, recorder.events)).state.hypervolume()
    assert rate == 0.0
    slow, fast = (0.5 - accuracy) * 10, (0.25 - accuracy) * 100_000  # up to that point
    assert volume == pytest.approx(fast + slow - (0.25 - accuracy) * 10)


def test_equal_trials_are_not_called_better_than_each_other(folder):
    recorder = Recorder()
    for number in (1, 2):
        recorder.complete(f"t{number:04d}", [0.5], 100.0, config(64 * number))
    assert "Run `t0001`, best or equal in everything" in summary(folder, recorder.events)


def test_a_figure_and_its_spread_stay_on_one_line(folder):
    assert not re.search(r"±$|^ *±", summary(folder, story()), re.MULTILINE)


def test_how_a_rate_was_measured_is_told_only_of_rates_that_were(folder):
    """A replayed rate has no windows, and no spread between them."""
    recorder = Recorder()
    recorder.start("t0001", **config())
    recorder.measure("t0001", 1, val_accuracy=0.4, images_per_second=100.0)
    recorder.finish("t0001")
    assert "windows" not in summary(folder, recorder.events)


def test_a_setting_whose_further_values_cannot_run_here_may_be_at_its_end(folder):
    recorder = Recorder(left_out=["batch_size 1024: too large"])
    for number, precision in enumerate(("fp32", "bf16"), start=1):
        recorder.complete(f"t{number:04d}", [0.9 - 0.1 * number], 100.0 * number, config(512, precision=precision))
    assert "that was searched" not in summary(folder, recorder.events)


def test_what_stands_behind_plus_minus_is_told_for_runs_of_old_too(folder):
    assert "±: half of a 95% interval." in flat(summary(folder, story()))
    recorder = Recorder()
    recorder.start("t0001", **config())
    recorder.measure("t0001", 1, val_accuracy=0.4, images_per_second=100.0, images_per_second_std=3.0)
    recorder.finish("t0001")
    text = flat(summary(folder, recorder.events))
    assert "100 ± 3 |" in text
    assert "± is the standard deviation between those windows" in text


def test_contended_rates_are_named(folder):
    recorder = Recorder()
    for trial_id, contended in (("t0001", 1.0), ("t0002", 0.0)):
        recorder.start(trial_id, **config(precision="bf16" if contended else "fp32"))
        rate = 100.0 - contended
        recorder.measure(trial_id, 1, val_accuracy=0.4 + contended, images_per_second=rate, contended=contended)
        recorder.finish(trial_id)
    text = flat(summary(folder, recorder.events))
    assert "Measured while other processes used the cores; the true rate may be higher: t0001." in text


PROBED = {
    "objectives": [INFO["objectives"][1], {"metric": "peak_memory_gib", "goal": "minimize"}],
    "space": {**INFO["space"], "evaluation": "probe"},
    "budget": {"trials": None, "epochs": 1, "hours": None, "total_epochs": None},
    "grid_points": 6,
}


def probes():
    """Two batch sizes with each of three numbers of loader processes; the first trial says what bound it."""
    run = Recorder(**PROBED)
    for n, (batch_size, workers) in enumerate(((b, w) for b in (64, 128) for w in (0, 1, 2)), start=1):
        run.start(f"t{n:04d}", "probe", **config(batch_size, loader="workers", num_workers=workers))
        stages = {f"{stage}_seconds": 0.0125 * n for stage in ("load", "forward", "backward", "update")}
        utilization = {
            "cpu_utilization": 0.91,
            "fraction_of_ceiling": 0.4,
            "gpu_utilization": 0.8,
            "gpu_memory_gib": 2.5,
        }
        run.measure(f"t{n:04d}", 0, **interval(1000.0 + n, 20.0), peak_memory_gib=n, **stages, **utilization)
        verdict = {"bound_by": "communication", "share": 0.5, "why": "50% of each step waits", "advice": []}
        run.add("finish", 1.0, trial_id=f"t{n:04d}", state="complete", seconds=8.0, setup_seconds=0.1, verdict=verdict)
    return run.events


def test_a_run_of_probes_says_where_the_time_goes_and_what_each_setting_does(folder):
    text = summary(folder, probes())
    for heading in ("## Where the time goes", "## Loader processes", "## Batch size"):
        assert heading in text
    assert "50% of each step waits." in flat(text)
    assert "Budget: 6 grid points, one probe per trial" in flat(text)
    assert "--epochs" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_accuracies_are_compared_by_difference_also_where_their_unit_is_not_told(folder):
    assert "Against the knee: val_accuracy 1.00 points higher" in flat(summary(folder, story(metrics={})))


def test_picks_that_are_one_trial_are_told_once(folder):
    recorder = Recorder()
    recorder.complete("t0001", [0.5], 100.0, config())
    text = summary(folder, recorder.events)
    assert "### Most accurate, knee and fastest: t0001" in text
    assert text.count("trainables.train") == 1
    assert "Run `t0001`, the only trial that can be compared" in text
    recorder.complete("t0002", [0.4], 90.0, config(learning_rate=0.2))
    assert "Run `t0001`, best in everything" in summary(folder, recorder.events)


def test_a_command_gives_the_shell_the_exact_configuration(folder):
    recorder = Recorder()
    odd = "it's $HOME; a b"
    recorder.complete("t0001", [0.5], 1.0, config(64, 0.04786230092322637, layout=odd, pin_memory=True))
    run = load(write_run(folder, recorder.events))
    text = command(run, run.state.front()[0])
    words = shlex.split(text.replace("\\\n", " "))
    settings = dict(word.split("=", 1) for word in words[3:] if "=" in word)
    assert settings["learning_rate"] == "0.04786230092322637"
    assert (settings["layout"], settings["pin_memory"], settings["batch_size"]) == (odd, "true", "64")
    assert words[: words.index("batch_size=64")] == [
        *("python", "-m", "trainables.train", "--trainable", "vgg19_cifar10", "--epochs", "1"),
        *("--data", "cifar10", "--val-samples", "5000", "--folder", "results/throughput-2026-11-20-1-t0001"),
    ]


def test_a_long_reason_without_spaces_is_shortened(folder):
    recorder = Recorder()
    recorder.start("t0001", **config())
    recorder.finish("t0001", "failed", "w" * 300)
    assert f"{'w' * 199}…" in summary(folder, recorder.events)


def test_a_command_states_a_default_that_the_run_had_and_this_version_has_not(folder):
    recorder = Recorder(defaults={"crop_padding": 4, "depth": 19, "nesterov_of_old": True, "width": 0.5})
    recorder.complete("t0001", [0.5], 1.0, config(64, 0.05, width=0.25))
    run = load(write_run(folder, recorder.events))
    words = shlex.split(command(run, run.state.front()[0]).replace("\\\n", " "))
    assert "crop_padding=4" in words
    assert "width=0.25" in words  # that of the trial
    assert not [word for word in words if word.startswith(("depth", "nesterov", "width=0.5"))]


def test_commands_name_the_folder_of_the_run_and_the_data_as_they_were_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = Path("else where/my run")  # not the name that the run began with
    space = {**INFO["space"], "data": {"name": "auto", "root": "my data"}}
    words = ["python", "-m", "search.run", "my spaces/x.yaml", "--results", "else where"]
    text = summary(folder, story(space=space, command=words))
    commands = [shlex.split(block.partition("```")[0]) for block in text.replace("\\\n", " ").split("```sh\n")[1:]]
    assert words in commands
    trained = [words for words in commands if "trainables.train" in words]
    assert [words[words.index("--folder") + 1][:-4] for words in trained] == ["else where/my run-t"] * 3
    assert all(words[words.index("--root") + 1] == "my data" for words in trained)
    both = next(words for words in commands if "search.train" in words)
    assert both[:4] == ["python", "-m", "search.train", "else where/my run"]
    assert both[both.index("search.pick") + 1] == "else where/my run"
    assert 'load("else where/my run")' in text
    assert "results/" not in text


def test_the_command_that_last_continued_the_run_stands_beside_the_first(folder):
    first, last = (["python", "-m", "search.run", name] for name in ("one.yaml", "two.yaml"))
    events = story(command=first)
    assert "Last continued by:" not in summary(folder, events)
    resumed = next(event for event in events if event["event"] == "resume")
    resumed["command"] = last
    assert "Last continued by:\n\n```sh\npython -m search.run two.yaml\n```" in summary(folder, events)
    resumed["command"] = first
    assert "Last continued by:" not in summary(folder, events)


def test_the_last_lines_name_every_point_of_the_front_and_explain_a_question_mark(folder):
    recorder = Recorder()
    for number, accuracy in enumerate((0.8, 0.79, 0.5, 0.45), start=1):
        recorder.start(f"t{number:04d}", **config(32 * number))
        rate = 100.0 * number
        recorder.measure(f"t{number:04d}", 3, val_accuracy=accuracy, **interval(rate, rate / 100))
        recorder.finish(f"t{number:04d}")
    text = flat(closing_lines(load(write_run(folder, recorder.events))))
    assert "Pareto front: 4 points" in text
    assert "Also on the front: t0003." in text
    assert "question mark" not in text
    recorder.events[2]["metrics"] |= interval(100.0, 150.0)
    text = flat(closing_lines(load(write_run(folder, recorder.events))))
    assert "100 ± ?" in text
    assert "A question mark: no interval is known, or it is as large as the value." in text


def test_a_folder_that_is_given_without_a_name_has_one_in_commands(tmp_path, monkeypatch):
    write_run(tmp_path / "run", story())
    monkeypatch.chdir(tmp_path / "run")
    run = load(".")
    assert f"--folder {tmp_path}/run-t0001" in command(run, run.state.trials["t0001"]).replace(" \\\n   ", "")


@pytest.mark.slow
def test_a_command_runs(folder):
    recorder = Recorder(trainable="replay", data={"name": "generated", "description": "replayed curves"})
    recorder.start("t0001", **config(64, 0.05))
    recorder.epochs("t0001", [0.5], 100.0)
    recorder.finish("t0001")
    run = load(write_run(folder, recorder.events))
    text = command(run, run.state.front()[0]).replace("python ", f"{sys.executable} ", 1)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    subprocess.run(text, shell=True, env=environment, check=True, capture_output=True)
    assert Path(f"{folder}-t0001/config.json").is_file()


def test_accuracy_on_generated_pictures_is_never_shown_without_saying_so(folder):
    text = flat(summary(folder, story(data=GENERATED)))
    assert "Generated data." in text
    shown = re.findall(r"(?:val|test)_accuracy(.{12})", text.replace("maximize val_accuracy", ""))
    assert shown
    assert all(after.startswith(" (generated)") for after in shown)
    assert "(generated)" in closing_lines(load(folder))


def test_accuracy_on_real_pictures_carries_no_warning(folder):
    assert "enerated" not in summary(folder, story())


def test_trials_are_counted_by_how_they_ended_with_reasons_grouped(folder):
    text = flat(summary(folder, story()).split("## Trials")[1])
    for cells in ("complete | 6", "infeasible | 2", "stopped | 1", "failed | 2", "**all** | 12"):
        assert cells in text
    assert "infeasible, 2 trials (t0002 and t0009): out of memory: 21.3 GiB" in text  # the two differ in figures only
    assert "failed, 1 trial (t0005): the loss is not finite" in text
    assert "Not compared: 1 complete trial" in text
    assert "2 restarts" in text


def test_the_conditions_of_the_figures_are_stated(folder):
    text = flat(summary(folder, story()))
    for fact in (
        "Intel(R) Xeon(R) Processor, 2 cores, 24 GiB memory, no GPU",
        "cifar10: 45,000 pictures",
        "torch 2.15.0",
        "Commit: abc1234",
        "Seed: 0",
        "python -m search.run spaces/throughput.yaml --set budget.hours=1.0",
        "Left out: precision fp16: needs a GPU",
        "Ended: the budget of 1 hour is spent",
        "Wall time: 8 min 17 s from 2026-11-20 18:40 UTC",
        "reference point val_accuracy 0.4790, images_per_second 158",
        "Each configuration was trained once (n = 1).",
        "On the front: the probability that a point belongs to the front",
        "windows after the warm-up, without evaluation and checkpoints",
        'run = load("results/throughput-2026-11-20-1")',
    ):
        assert fact in text


def test_a_run_with_gpus_names_them(folder):
    machine = {**INFO["machine"], "gpus": [{"name": "NVIDIA H200", "memory_gib": 139.8}]}
    assert "24 GiB memory, 1 x NVIDIA H200 (140 GiB)" in flat(summary(folder, story(machine=machine)))


def test_the_meaning_of_auto_on_the_machine_of_the_run_is_stated(folder):
    assert "Auto: precision was bf16" in flat(summary(folder, story(auto={"precision": "bf16"})))
    assert "Auto:" not in flat(summary(folder, story()))


def test_a_run_without_a_front_says_so_and_why(folder):
    recorder = Recorder()
    for number in range(6):
        recorder.start(f"t{number + 1:04d}", **config())
        recorder.finish(f"t{number + 1:04d}", "infeasible", f"out of memory: {number} GiB free")
    text = flat(summary(folder, recorder.events))
    assert "No configuration to recommend**: no trial completed" in text
    assert "infeasible, 6 trials (t0001, t0002, t0003, t0004 and 2 more): out of memory" in text
    assert "## Picks" not in text
    assert "infeasible, 6 trials" in flat(closing_lines(load(folder)))


@pytest.mark.parametrize("size", [1, 2, 3, 12, 30])
def test_a_run_can_be_summarized_at_any_moment(folder, size):
    summary(folder, story()[:size])


def test_the_text_is_in_the_folder_and_no_unfinished_file_beside_it(folder):
    assert summary(folder, story()) == (folder / "summary.md").read_text()
    assert sorted(path.name for path in folder.iterdir()) == ["journal.jsonl", "summary.md"]


def test_the_last_lines_of_a_run_name_its_picks_and_its_summary(folder):
    write_run(folder, story())
    lines = closing_lines(load(folder)).splitlines()
    assert lines[0] == "Pareto front: 3 points from 6 complete trials"
    assert lines[1].startswith("  t0003  most accurate: val_accuracy 0.7100")
    assert lines[-1] == f"Commands and conditions: {folder}/summary.md, report.html"


def test_the_last_lines_say_that_rates_were_measured_beside_other_processes(folder):
    events = story()
    for event in events:
        if event["event"] == "measurement" and event["trial_id"] in ("t0003", "t0007"):
            event["metrics"]["contended"] = 1.0
    write_run(folder, events)
    said = "Other processes used the cores during 2 of 5 trials: their true rates may be higher."
    assert said in flat(closing_lines(load(folder)))
    write_run(folder, story())
    assert "Other processes" not in closing_lines(load(folder))


@pytest.mark.parametrize(("accuracies", "said"), [([0.645] * 4, True), ([0.645, 0.645, 0.645, 0.61], False)])
def test_trainings_that_have_all_learned_the_same_are_named(tmp_path, accuracies, said):
    """Such as the share of the largest class."""
    recorder = Recorder()
    for number, accuracy in enumerate(accuracies, start=1):
        recorder.complete(f"t{number:04d}", [0.3, 0.5, accuracy], 100.0 + number, config(64, 0.01 * number))
    run = load(write_run(tmp_path, recorder.events))
    text = "all 4 trainings have the same val_accuracy: they may have learned nothing."
    for shown in (closing_lines(run), write_summary(run)):
        assert (text in " ".join(shown.split())) == said
