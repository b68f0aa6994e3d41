"""Deciding: the trial that a wish means, how sure that is, and what is said where no trial is like that."""

import io
import json
import shlex
import sys

import pytest
from ruamel.yaml import YAML

from search.commandline import NoResultError, print_output
from search.front.objective import Constraint
from search.pick.__main__ import main
from search.pick.requirements import Requirements, best, probabilities
from search.results import load
from search.run import main as run_main
from search.space.parsing import load_space
from tests.search.runs import INFO, Recorder, config, story, write_run

# of the story: t0003 (0.71, 180 images/s), t0007 (0.70, 352), t0006 (0.50, 340), t0001 (0.52, 301), t0011 (0.58, 401)


@pytest.fixture
def folder(tmp_path):
    return write_run(tmp_path / "throughput-2026-11-20-1", story())


def told(capsys, folder, *options):
    code = main([str(folder), *options])
    return code, *capsys.readouterr()


def flat(text):
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("options", "trial_id"),
    [
        ([], "t0007"),
        (["--knee"], "t0007"),
        (["--accuracy-within", "0"], "t0003"),
        (["--accuracy-within", "0.01"], "t0007"),
        (["--accuracy-within", "0.2"], "t0011"),
        (["--at-least", "images_per_second=400"], "t0011"),
        (["--at-least", "images_per_second=400", "--at-most", "images_per_second=1,000,000"], "t0011"),
        (["--at-least", "images_per_second=300", "--at-least", "val_accuracy=0.6"], "t0007"),
        (["--at-most", "images_per_second=350"], "t0003"),
        (["--at-least", "val_accuracy=0.5", "--at-most", "images_per_second=345"], "t0001"),
        (["--accuracy-within", "0.2", "--at-most", "images_per_second=350"], "t0003"),
    ],
)
def test_a_wish_means_the_best_of_what_it_leaves_open(capsys, folder, options, trial_id):
    code, out, err = told(capsys, folder, *options)
    assert (code, err) == (0, "")
    assert out.startswith(f"{trial_id} of throughput-2026-11-20-1: ")


def test_without_a_wish_it_is_what_the_summary_recommends(capsys, folder):
    from search.report.report import write_summary

    assert "Run `t0007`, the best compromise" in write_summary(load(folder))
    assert told(capsys, folder)[1].startswith("t0007 of throughput-2026-11-20-1: the best compromise\n")


def test_a_run_that_was_killed_has_not_ended(capsys, tmp_path):
    folder = write_run(tmp_path / "run", story()[:-1])
    assert "The run has not ended; this is the result so far, of 5 trials." in flat(told(capsys, folder)[1])


def test_the_answer_has_measurements_with_intervals_a_reason_and_the_command(capsys, folder):
    out = told(capsys, folder, "--accuracy-within", "0.011")[1]
    text = flat(out)
    for fact in (
        "the fastest that meets the requirements (of all trials: knee)",
        "val_accuracy 0.7000 ± 0.013",  # 1.96 √(0.7 · 0.3 / 5000)
        "images_per_second 352 ± 4",
        "test_accuracy 0.6940",
        "on the front 100% probable",
        "of the 2 of 5 trials with val_accuracy within 0.011 of that of t0003 (0.7100 ± 0.013, the best)",
        "Against the fastest: val_accuracy 12.00 points higher",
        "learning_rate 0.06",
        "about 67 min on that machine",
    ):
        assert fact in text
    assert "has not ended" not in text
    words = shlex.split(out[out.index("python -m") :].replace("\\\n", " "))
    assert words == ["python", "-m", "search.train", str(folder), "--trial", "t0007", "--epochs", "200"]


def test_seconds_to_an_accuracy_are_no_accuracy(capsys, tmp_path):
    seconds = {"metric": "seconds_to_val_accuracy_0.5", "goal": "minimize"}
    recorder = Recorder(objectives=[seconds, INFO["objectives"][1]])
    recorder.start("t0001", **config())
    recorder.measure("t0001", 3, **{"seconds_to_val_accuracy_0.5": 60.0, "images_per_second": 100.0})
    recorder.finish("t0001")
    code, _, error = told(capsys, write_run(tmp_path / "run", recorder.events), "--accuracy-within", "0.05")
    assert code == 2
    assert "the objectives of" in error


def test_trials_that_the_pick_cannot_be_told_apart_from_are_named(capsys, tmp_path):
    recorder = Recorder()
    for number, (accuracy, rate) in enumerate([(0.700, 300.0), (0.699, 299.9)], start=1):
        recorder.complete(f"t{number:04d}", [0.3, accuracy], rate, config(8 * number))
    out = told(capsys, write_run(tmp_path / "alike", recorder.events))[1]
    assert "t0001 cannot be told apart from t0002 (" in flat(out)


@pytest.mark.parametrize("options", [[], ["--accuracy-within", "0.011"], ["--at-least", "images_per_second=400"]])
def test_it_fits_a_terminal(capsys, tmp_path, monkeypatch, options):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "results" / "throughput-2026-11-20-1", story())
    out = told(capsys, "results/throughput-2026-11-20-1", *options)[1]
    assert max(map(len, out.splitlines())) <= 80


def test_how_sure_a_wish_is_met_comes_from_the_intervals(folder):
    """401 ± 4 is 0.49 standard deviations above 400; two accuracies that far apart differ by luck."""
    run = load(folder)
    requirements = Requirements((Constraint("images_per_second", ">=", 400.0),))
    assert probabilities(run, best(run, requirements).trial, requirements) == {
        "images_per_second at least 400": pytest.approx(0.69, abs=0.005)
    }
    requirements = Requirements(within={"val_accuracy": 0.01})
    assert probabilities(run, best(run, requirements).trial, requirements) == {
        "val_accuracy within 0.01 of that of t0003": pytest.approx(0.5)
    }
    requirements = Requirements((Constraint("peak_memory_fraction", "<=", 0.5),))
    assert probabilities(run, best(run, requirements).trial, requirements) == {}


def test_a_metric_that_a_trial_has_not_measured_does_not_meet_a_wish_of_it(folder):
    run = load(folder)  # of t0007 no peak_memory_fraction is known
    assert (
        best(run, Requirements((Constraint("peak_memory_fraction", "<=", 0.5),), knee=True)).trial.trial_id != "t0007"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--at-least", "images_per_second=4000"],
            "none of the 5 trials compared has images_per_second at least 4,000; "
            "nearest: t0011, images_per_second 401 ± 4 (val_accuracy 0.5800 ± 0.014)",
        ),
        (
            ["--at-least", "images_per_second=400", "--at-least", "val_accuracy=0.6"],
            "none of the 5 trials compared has images_per_second at least 400 and val_accuracy at least 0.6; "
            "nearest: t0011, val_accuracy 0.5800 ± 0.014 (images_per_second 401 ± 4)",
        ),
        (
            ["--at-most", "train_loss=1"],
            "throughput-2026-11-20-1: no complete trial measured train_loss",
        ),
    ],
)
def test_where_no_trial_is_like_that_the_nearest_is_named(capsys, folder, options, message):
    assert told(capsys, folder, *options) == (1, "", f"search.pick: {message}\n")


def test_a_run_that_has_completed_nothing_says_so(capsys, tmp_path):
    recorder = Recorder()
    recorder.start("t0001", **config())
    folder = write_run(tmp_path / "run", recorder.events)
    assert told(capsys, folder)[0::2] == (
        1,
        "search.pick: throughput-2026-11-20-1: no trial completed, so there is no Pareto front\n",
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--at-least", "images_per_secnd=4"], 'has no metric "images_per_secnd"; did you mean "images_per_second"?'),
        (["--at-least", "4000"], "--at-least 4000: expected METRIC=NUMBER, as in --at-least val_accuracy=0.9"),
        (["--at-least", "val_accuracy=0,9"], "--at-least val_accuracy=0,9: expected METRIC=NUMBER"),
        (["--at-most", "val_loss=low"], "--at-most val_loss=low: expected METRIC=NUMBER"),
        (["--at-most", "val_loss=nan"], "--at-most val_loss=nan: expected METRIC=NUMBER"),
        (["--accuracy-within", "-1"], "--accuracy-within -1: expected a fraction"),
        (["--epochs", "0"], "--epochs 0: at least one is needed"),
        (["--yaml", "--json"], "argument --json: not allowed with argument --yaml"),
        (["--fastest"], "unrecognized arguments: --fastest"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(capsys, folder, options, message):
    code, out, err = told(capsys, folder, *options)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_what_is_no_run_is_bad_input(capsys, tmp_path):
    assert told(capsys, tmp_path)[0] == 2


def test_accuracy_within_is_a_fraction_also_of_percents(capsys, tmp_path):
    goals = [{"metric": "val_accuracy_percent", "goal": "maximize"}, INFO["objectives"][1]]
    recorder = Recorder(objectives=goals, constraints=[], metrics={"val_accuracy_percent": "%"})
    for number, (accuracy, rate) in enumerate(((90.0, 100.0), (89.6, 200.0), (80.0, 300.0)), start=1):
        recorder.start(f"t000{number}", **config(64 * number))
        recorder.measure(f"t000{number}", 1, val_accuracy_percent=accuracy, images_per_second=rate)
        recorder.finish(f"t000{number}")
    folder = write_run(tmp_path / "run", recorder.events)
    assert "within 0.5 of that of t0001" in told(capsys, folder, "--accuracy-within", "0.005")[1]


def test_the_recommended_compromise_stays_where_it_meets_the_wishes(folder):
    run = load(folder)
    wishes = Requirements((Constraint("images_per_second", ">=", 300.0),), {}, knee=True)
    assert best(run, wishes).trial is run.state.knee


def test_accuracy_within_needs_an_accuracy(capsys, tmp_path):
    objectives = [INFO["objectives"][1], {"metric": "peak_memory_gib", "goal": "minimize"}]
    recorder = Recorder(objectives=objectives, space={**INFO["space"], "evaluation": "probe"})
    recorder.start("t0001", "probe", **config())
    recorder.measure("t0001", 0, images_per_second=100.0, peak_memory_gib=1.0)
    recorder.finish("t0001")
    folder = write_run(tmp_path / "run", recorder.events)
    code, _, err = told(capsys, folder, "--accuracy-within", "0.01")
    assert code == 2
    assert "objectives of throughput-2026-11-20-1 are images_per_second and peak_memory_gib; --at-least" in err
    assert "a probe of a few seconds" in told(capsys, folder)[1]


def test_three_objectives_leave_a_compromise(tmp_path):
    objectives = [*INFO["objectives"], {"metric": "peak_memory_gib", "goal": "minimize"}]
    recorder = Recorder(objectives=objectives, constraints=[])
    for name, accuracy, rate, memory in (
        ("t0001", 0.9, 100.0, 9.0),
        ("t0002", 0.9, 90.0, 2.0),
        ("t0003", 0.9, 50.0, 1.9),
        ("t0004", 0.5, 900.0, 0.1),
    ):
        recorder.start(name, **config(32 * int(name[1:])))
        recorder.measure(name, 1, val_accuracy=accuracy, images_per_second=rate, peak_memory_gib=memory)
        recorder.finish(name)
    run = load(write_run(tmp_path / "run", recorder.events))
    assert best(run, Requirements(within={"val_accuracy": 0.01})).trial.trial_id == "t0002"
    with pytest.raises(NoResultError, match="nearest: t0004, peak_memory_gib"):
        best(run, Requirements((Constraint("peak_memory_gib", "<=", 0.05),)))


def test_an_objective_may_be_nearly_the_best_in_its_own_direction(capsys, tmp_path):
    objectives = [{"metric": "val_loss", "goal": "minimize"}, INFO["objectives"][1]]
    recorder = Recorder(objectives=objectives)
    for name, loss, rate in (("t0001", 1.50, 100.0), ("t0002", 1.52, 300.0), ("t0003", 1.90, 900.0)):
        recorder.start(name, **config(32 * int(name[1:])))
        recorder.measure(name, 1, val_loss=loss, images_per_second=rate)
        recorder.finish(name)
    folder = write_run(tmp_path / "run", recorder.events)
    out = flat(told(capsys, folder, "--within", "val_loss=0.05")[1])
    assert "t0002" in out
    assert "val_loss within 0.05 of that of t0001 (1.50, the best)" in out
    assert told(capsys, folder, "--within", "val_loss=-1")[0] == 2
    code, _, err = told(capsys, folder, "--within", "peak_memory_gib=1")
    assert code == 2
    assert "--within peak_memory_gib: the objectives" in err


def test_as_json_it_is_complete_and_valid(capsys, folder):
    content = json.loads(told(capsys, folder, "--json")[1])
    assert (content["trial"], content["config"]["batch_size"], content["compared"]) == ("t0007", 128, 5)
    assert content["metrics"]["images_per_second"] == {"value": 352.0, "unit": "images/s", "low": 348.0, "high": 356.0}
    assert content["command"].endswith("--trial t0007 --epochs 200")


def test_as_json_a_metric_has_the_ends_of_its_interval_as_they_were_measured(capsys, tmp_path):
    recorder = Recorder()
    recorder.start("t0001", **config(64))
    ends = {"images_per_second": 2000.0, "images_per_second_low": -300.0, "images_per_second_high": 13000.0}
    recorder.measure("t0001", 1, val_accuracy=0.5, **ends)
    recorder.finish("t0001")
    content = json.loads(told(capsys, write_run(tmp_path / "run", recorder.events), "--json")[1])
    assert content["metrics"]["images_per_second"] == {"value": 2000.0, "unit": "images/s", "low": 0.0, "high": 13000.0}


def test_as_yaml_it_is_a_space_file_of_this_configuration_alone(capsys, folder, tmp_path):
    path = tmp_path / "pick.yaml"
    path.write_text(told(capsys, folder, "--yaml")[1])
    space = load_space(path)
    assert [{**space.fixed, **point} for point in space.grid()] == [load(folder).state.trials["t0007"].config]
    assert (space.budget.epochs, space.data.val_images) == (3, 5000)
    assert run_main([str(path), "--set", "data.name=nowhere", "--dry-run"]) == 2  # so it is read as any space file


def test_as_yaml_a_default_that_has_changed_since_is_stated(capsys, tmp_path):
    recorder = Recorder(defaults={"weight_decay": 0.002, "width": 0.5, "depth": 19})
    recorder.complete("t0001", [0.5], 100.0, config(width=0.25))
    space = YAML(typ="safe").load(told(capsys, write_run(tmp_path / "run", recorder.events), "--yaml")[1])
    settings = {**space["fixed"], **{name: each["values"][0] for name, each in space["parameters"].items()}}
    assert (settings["weight_decay"], settings["width"]) == (0.002, 0.25)
    assert "depth" not in settings


def test_the_reason_of_a_failed_test_fits_80_columns(capsys, tmp_path):
    recorder = Recorder()
    recorder.complete("t0001", [0.5], 100.0, config())
    recorder.add("test", 5.0, trial_id="t0001", metrics={}, reason="there is no checkpoint of it " * 6)
    text = told(capsys, write_run(tmp_path / "run", recorder.events))[1]
    assert "test failed: there is no checkpoint" in text
    assert max(len(line) for line in text.splitlines() if str(tmp_path) not in line) <= 80


def test_a_training_file_is_named_so_that_yaml_reads_it(capsys, tmp_path):
    path = "/runs #2/it: is/train.py"
    folder = write_run(tmp_path / "run", story(trainable=path))
    assert YAML(typ="safe").load(told(capsys, folder, "--yaml")[1])["trainable"] == path


def test_an_output_that_knows_few_letters_gets_what_it_can_show(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    print_output("352 ± 4.1")
    assert raw.getvalue() == b"352 ? 4.1\n"


def test_generated_pictures_are_never_shown_without_saying_so(capsys, tmp_path):
    data = {"name": "generated", "description": "generated: 2,000 pictures to train on, 500 to validate"}
    folder = write_run(tmp_path / "run", story(data=data))
    out = flat(told(capsys, folder, "--accuracy-within", "0.1")[1])
    assert out.count("val_accuracy") == out.count("val_accuracy (generated)")
