"""Conditions with which a comparison fails: what they find, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

import search.compare.__main__ as compare
from search.compare.__main__ import main
from search.compare.settled import Settled
from search.front.differences import Estimate
from search.record.journal import FILE_NAME
from search.record.run_state import RunState
from tests.search.runs import INFO, Recorder, config, story, typed, write_run


def run(folder: Path, name: str, *trials: tuple[float, float], **changed: Any) -> Path:
    """A run with one trial for each accuracy and rate, all with intervals of 2%."""
    recorder = Recorder(name=name, **changed)
    for number, (accuracy, rate) in enumerate(trials, start=1):
        trial_id = f"t{number:04d}"
        recorder.start(trial_id, **config(32 * 2**number))
        ends = {"images_per_second_low": 0.98 * rate, "images_per_second_high": 1.02 * rate}
        ends |= {"val_accuracy_low": accuracy - 0.01, "val_accuracy_high": accuracy + 0.01}
        recorder.measure(trial_id, 1, val_accuracy=accuracy, images_per_second=rate, **ends)
        recorder.finish(trial_id)
    return write_run(folder / name, recorder.events)


def code_of(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    code = main([f"{word}" for word in words])
    out, err = capsys.readouterr()
    return code, " ".join((out + err).split())


def runs_without_intervals(folder: Path, metric: str, unit: str, goal: str, values: tuple[float, float]) -> list[Path]:
    """Two runs of one configuration, for which each measured another value of a probed metric."""
    goals = [INFO["objectives"][0], {"metric": metric, "goal": goal, "probed": True}]
    runs = []
    for name, value in zip(("one", "two"), values, strict=True):
        recorder = Recorder(name=name, objectives=goals, trainable="replay", metrics={metric: unit})
        recorder.start("t0001", **config())
        recorder.measure("t0001", 1, val_accuracy=0.5, **{metric: value})
        recorder.finish("t0001")
        runs.append(write_run(folder / name, recorder.events))
    return runs


@pytest.mark.parametrize(("condition", "code"), [("memory_gib>1.1", 1), ("memory_gib>2.1", 0)])
def test_what_has_no_interval_is_compared_as_it_is(tmp_path, capsys, condition, code):
    runs = runs_without_intervals(tmp_path, "memory_gib", "GiB", "minimize", (2.0, 4.0))
    found, text = code_of(capsys, *runs, "--fail-if", condition)
    assert found == code
    assert "B has 2.00 times the memory_gib of A, over 1 shared configuration" in text


@pytest.mark.parametrize(
    ("condition", "code", "text"),
    [
        ("images_per_second<0.95", 1, "B has 0.90 (0.87 to 0.93) times the rate of A, over 2 shared configurations"),
        ("images_per_second<0.91", 0, "B has 0.90 (0.87 to 0.93) times the rate of A"),  # not surely
        ("images_per_second<0.8", 0, "B has 0.90"),
        ("images_per_second>0.5", 1, "B has 0.90"),
        (
            "val_accuracy<-0.02",
            1,
            "B minus A is -0.0400 (-0.0541 to -0.0259), over 2 shared configurations; seeds of A and B are taken to"
            " differ as much as samples, as their spread is not known: **failed**",
        ),
        ("val_accuracy<-0.03", 0, "B minus A is -0.0400"),
        ("hypervolume<0.9", 1, "times the hypervolume of A: **failed**"),
        ("hypervolume<0.01", 0, "times the hypervolume of A"),
    ],
)
def test_a_condition_fails_where_it_surely_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], condition: str, code: int, text: str
) -> None:
    before = run(tmp_path, "before", (0.70, 100.0), (0.60, 200.0))
    after = run(tmp_path, "after", (0.66, 90.0), (0.56, 180.0))
    found, told = code_of(capsys, before, after, "--fail-if", condition)
    assert text in told
    assert found == code
    assert ("**failed**" in told) == bool(code)


def test_several_conditions_are_all_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = (run(tmp_path, name, (0.7, 100.0)) for name in ("one", "other"))
    words = ["--fail-if", "images_per_second<0.95", "--fail-if", "val_accuracy<-0.1"]
    code, told = code_of(capsys, one, other, *words)
    assert code == 0
    assert "`images_per_second<0.95`: B has 1.00" in told
    assert "`val_accuracy<-0.1`: B minus A is 0" in told


def test_runs_without_a_shared_configuration_fail_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = run(tmp_path, "one", (0.7, 100.0))
    recorder = Recorder(name="other")
    recorder.complete("t0001", [0.5], 50.0, config(999))
    other = write_run(tmp_path / "other", recorder.events)
    code, told = code_of(capsys, one, other, "--fail-if", "images_per_second<0.95")
    assert code == 0
    assert "B shares no configuration with A whose interval is known" in told


def test_what_turns_have_measured_counts_in_place_of_separate_measurements() -> None:
    from search.compare.comparison import Side
    from search.compare.fail_if import FailIf, outcomes

    class Run:
        state = RunState(typed(story()))
        info = state.info

    sides: Any = [Side("A", Run()), Side("B", Run())]  # type: ignore[arg-type]
    (found,) = outcomes(FailIf("images_per_second", True, 0.95), sides, [], {"B": [Estimate(-0.2, 0.01)]})
    assert found.failed
    assert "B has 0.82 (0.80 to 0.83) times the rate of A, over 1 shared configuration" in found.text


def test_other_seeds_count_for_an_accuracy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A was lucky with its first seed and B was not."""
    folders = []
    for name, accuracies in (("before", (0.62, 0.58, 0.57)), ("after", (0.58, 0.61, 0.61))):
        folder = run(tmp_path, name, (accuracies[0], 100.0))
        with (folder / FILE_NAME).open("a") as journal:
            for seed, value in enumerate(accuracies[1:], start=1):
                metrics = {"val_accuracy": value, "val_accuracy_low": value - 0.01, "val_accuracy_high": value + 0.01}
                event = {"event": "again", "time": 2e9, "trial_id": "t0001", "seed": seed, "metrics": metrics}
                journal.write(json.dumps(event) + "\n")
        folders.append(folder)
    code, told = code_of(capsys, *folders, "--fail-if", "val_accuracy<-0.01")
    assert "B minus A is 0.0100 (" in told
    assert code == 0


def test_turns_of_rates_say_nothing_of_another_metric(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """B is twice as fast in turns, and has the same memory."""
    objectives = [*INFO["objectives"], {"metric": "peak_memory_fraction", "goal": "minimize"}]
    folders = []
    for name in ("before", "after"):
        recorder = Recorder(name=name, objectives=objectives)
        recorder.start("t0001", **config(64))
        ends = {"peak_memory_fraction_low": 0.39, "peak_memory_fraction_high": 0.41}
        recorder.epochs("t0001", [0.7], 100.0, **ends)
        recorder.finish("t0001")
        folders.append(write_run(tmp_path / name, recorder.events))
    turns = Settled({"batch_size": 64}, 8, {"B": Estimate(0.7, 0.01)})
    monkeypatch.setattr(compare, "trainings", lambda *arguments: [["a"], ["b"]])
    monkeypatch.setattr(compare, "settle", lambda *arguments: [turns])
    words = ["--settle", "--fail-if", "peak_memory_fraction>1.1", "--fail-if", "images_per_second>1.5"]
    code, told = code_of(capsys, *folders, *words)
    assert "B has 1.00 (0.97 to 1.04) times the peak_memory_fraction of A, over 1 shared configuration" in told
    assert "B has 2.01 (1.97 to 2.05) times the rate of A, over 1 shared configuration: **failed**" in told
    assert code == 1


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("images_per_second", "expected METRIC<NUMBER or METRIC>NUMBER"),
        ("images_per_second<fast", "expected METRIC<NUMBER or METRIC>NUMBER"),
        ("accuracy<0.9", "expected a number for one of images_per_second, val_accuracy and hypervolume"),
        ("images_per_second<-0.1", "a ratio is above 0"),
    ],
)
def test_bad_conditions_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], condition: str, message: str
) -> None:
    one, other = (run(tmp_path, name, (0.7, 100.0)) for name in ("one", "other"))
    assert main([str(one), str(other), "--fail-if", condition]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_a_duration_which_has_no_interval_is_no_condition(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    objectives = [{"metric": "val_accuracy", "goal": "maximize"}, {"metric": "training_seconds", "goal": "minimize"}]
    one, other = (run(tmp_path, name, (0.7, 100.0), objectives=objectives) for name in ("one", "other"))
    code, told = code_of(capsys, one, other, "--fail-if", "training_seconds>3")
    assert code == 2
    assert "training_seconds has no interval" in told


def test_rates_of_other_machines_and_accuracies_of_other_data_are_no_condition(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = run(tmp_path, "one", (0.7, 100.0))
    elsewhere = run(tmp_path, "elsewhere", (0.7, 100.0), machine={**INFO["machine"], "cores": 12})
    code, told = code_of(capsys, one, elsewhere, "--fail-if", "images_per_second<0.95")
    assert code == 2
    assert "the runs are from different machines" in told
    halves = run(tmp_path, "halves", (0.7, 100.0), space={**INFO["space"], "concurrent_trials": 2})
    code, told = code_of(capsys, one, halves, "--fail-if", "images_per_second<0.95")
    assert code == 2
    assert "different numbers of trials share the machine" in told
    data = {"name": "cifar10", "description": "cifar10: 10,000 pictures"}
    code, told = code_of(capsys, one, run(tmp_path, "fewer", (0.7, 100.0), data=data), "--fail-if", "val_accuracy<-0.1")
    assert code == 2
    assert "the data differ" in told


def test_rates_of_many_configurations_in_another_hour_are_no_surer_than_those_of_one(tmp_path, capsys):
    """A machine that is slower for an hour has lower rates of all."""
    sizes = range(1, 9)
    before = run(tmp_path, "before", *((0.7, 100.0 * size) for size in sizes))
    after = run(tmp_path, "after", *((0.7, 98.0 * size) for size in sizes))
    code, text = code_of(capsys, before, after, "--fail-if", "images_per_second<1.0")
    assert code == 0
    assert "B has 0.98 (0.95 to 1.01) times the rate of A, over 8 shared configurations" in text


def test_what_a_probe_measured_without_an_interval_is_known_to_15_percent(tmp_path, capsys):
    runs = runs_without_intervals(tmp_path, "images_per_joule", "images/J", "maximize", (10.0, 8.0))
    assert code_of(capsys, *runs, "--fail-if", "images_per_joule<0.95")[0] == 0
    assert code_of(capsys, *runs, "--fail-if", "images_per_joule<1.3")[0] == 1


def test_configurations_whose_interval_is_not_known_are_counted_apart(tmp_path, capsys):
    folders = []
    for name in ("one", "two"):
        recorder = Recorder(name=name)
        recorder.complete("t0001", [0.7], 100.0, config(64))
        recorder.start("t0002", **config(128))
        recorder.measure("t0002", 1, val_accuracy=0.6, images_per_second=120.0)
        recorder.finish("t0002")
        folders.append(write_run(tmp_path / name, recorder.events))
    _, text = code_of(capsys, *folders, "--fail-if", "images_per_second<0.95")
    assert "over 1 of 2 shared configurations, those whose interval is known" in text


def test_a_bad_trial_of_one_run_changes_no_hypervolume(tmp_path, capsys):
    good, fewer = ((0.7, 100.0), (0.6, 200.0)), ((0.7, 100.0), (0.5, 190.0))
    alone = code_of(capsys, run(tmp_path, "a", *good), run(tmp_path, "b", *fewer), "--fail-if", "hypervolume<0.95")
    with_bad = run(tmp_path, "c", *good, (0.1, 1.0))
    beside = code_of(capsys, with_bad, run(tmp_path, "d", *fewer), "--fail-if", "hypervolume<0.95")
    shares = [text.partition("B has ")[2].split()[0] for _, text in (alone, beside)]
    assert shares[0] == shares[1]
