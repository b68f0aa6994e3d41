"""Runs that are taken up again: finished ones, extended ones, ones that another process has."""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from search.exit_codes import InputError
from search.record.events import Opening, Start
from search.record.journal import FILE_NAME, read_journal
from search.record.run_lock import RunLockedError, lock_run
from search.record.run_state import RunState
from search.results import load
from search.run import _resume_command, main
from search.run_options import parser
from search.space.budget import Budget
from search.space.parsing import load_space
from search.space.restriction import for_machine
from search.study.resumed import (
    budget_changes,
    changed_budget,
    check_length,
    check_same_data,
    check_same_defaults,
    check_same_space,
)
from search.study.run_folder import made_folder
from tests.faults.processes import SPACE
from tests.faults.simulation import Killed, a_space, killing, simulate
from tests.search.runs import story, typed
from trainables.contract import Resources

SPACES = Path(__file__).parents[2] / "spaces"

OWNER = """
import sys, time
from pathlib import Path
from search.record.run_lock import lock_run
with lock_run(Path(sys.argv[1])):
    print("mine", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run that came to its end."""
    simulate(tmp_path / "results" / "run", a_space(budget={"trials": 3, "epochs": 2}))
    return tmp_path / "results" / "run"


@pytest.fixture
def would_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Say so in place of starting Ray."""

    @contextlib.contextmanager
    def connected(*arguments: Any) -> Iterator[None]:
        raise InputError("Ray would be started")
        yield

    monkeypatch.setattr("search.run._connected", connected)


@pytest.fixture
def stranger(run: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the folder."""
    command = [sys.executable, "-c", OWNER, str(run)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "mine\n"
        yield process
        process.kill()


def test_a_finished_run_says_what_was_found_starts_nothing_and_writes_no_event(
    run: Path, would_start: None, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (run / FILE_NAME).read_bytes()
    assert main(["--resume", str(run)]) == 0
    assert "Pareto front: " in capsys.readouterr().out
    assert (run / FILE_NAME).read_bytes() == before
    assert (run / "summary.md").exists()


@pytest.mark.parametrize("extension", ["budget.trials=4", "budget.repeats=2", "budget.deciding=0.2"])
def test_a_finished_run_that_is_extended_goes_on(
    run: Path, would_start: None, extension: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--resume", str(run), "--set", extension]) == 2
    changed, would = capsys.readouterr().err.splitlines()
    assert re.fullmatch(rf"{re.escape(str(run))}: budget\.\w+ was [\w.]+, and is [\d.]+ now", changed)
    assert would == "Ray would be started"


@pytest.mark.parametrize(
    ("changes", "spent"),
    [
        (["budget.trials=9", "budget.hours=1e-9"], r"budget\.hours is spent: \S+ of 1e-09"),
        (["budget.hours=2"], r"budget\.trials is spent"),
        (["budget.trials=9", "budget.total_epochs=2"], r"budget\.total_epochs is spent"),
    ],
)
def test_a_finished_run_whose_new_budget_is_spent_stays_as_it_was(
    run: Path, would_start: None, changes: list[str], spent: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (run / FILE_NAME).read_bytes()
    assert main(["--resume", str(run), *(word for change in changes for word in ("--set", change))]) == 0
    told = capsys.readouterr()
    assert re.fullmatch(rf"{re.escape(str(run))}: {spent}; the run stays as it was\n", told.err)
    assert "Pareto front: " in told.out
    assert (run / FILE_NAME).read_bytes() == before


def test_a_killed_run_may_be_ended_earlier(
    tmp_path: Path, would_start: None, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Killed):
        simulate(tmp_path / "run", a_space(), [killing(lambda n: n == 5)])
    assert main(["--resume", str(tmp_path / "run"), "--set", "budget.hours=1e-9"]) == 2
    assert capsys.readouterr().err.endswith("Ray would be started\n")


def test_an_interrupted_run_goes_on(tmp_path: Path, would_start: None, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Killed):
        simulate(tmp_path / "run", a_space(), [killing(lambda n: n == 5)])
    assert main(["--resume", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err == "Ray would be started\n"


def test_more_trials_are_more_trials(run: Path) -> None:
    events = simulate(run, a_space(budget={"trials": 5, "epochs": 2}))
    assert [e.trial_id for e in events if isinstance(e, Start)] == [f"t000{n}" for n in range(1, 6)]
    assert load(run).trials.state.tolist() == ["complete"] * 5


@pytest.mark.parametrize("change", ["parameters.x=1", "fixed.batch_size=64", "searcher.seed=3", "budget=1", "x"])
def test_a_changed_space_is_refused_with_the_key_named(
    run: Path, would_start: None, change: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--resume", str(run), "--set", change]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"--set {change}: a resumed run keeps its {change.partition('=')[0].partition('.')[0]}")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("budget.trials=many", 'found "many"; expected a whole number'),
        ("budget.trials=-1", "found -1; expected at least 1"),
        ("budget.trails=3", 'did you mean "trials"?'),
        ("budget.trials=[", "not valid YAML"),
        ("budget.trials", "expected KEY=VALUE"),
    ],
)
def test_an_extension_that_makes_no_sense_is_told_in_a_line(
    run: Path, would_start: None, change: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--resume", str(run), "--set", change]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_a_run_has_one_owner_and_it_is_named(
    run: Path, stranger: subprocess.Popen[str], would_start: None, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (run / FILE_NAME).read_bytes()
    assert main(["--resume", str(run)]) == 2
    holder = f"process {stranger.pid} on {socket.gethostname()}"
    assert capsys.readouterr().err == f"{run}: {holder} is running it; wait for its end, or stop it\n"
    assert (run / FILE_NAME).read_bytes() == before


def test_a_dead_owner_is_taken_over(run: Path, stranger: subprocess.Popen[str], would_start: None) -> None:
    os.kill(stranger.pid, signal.SIGKILL)
    stranger.wait()
    assert main(["--resume", str(run)]) == 0


def test_an_owner_is_one_within_a_process_too(tmp_path: Path) -> None:
    with lock_run(tmp_path), pytest.raises(RunLockedError, match=f"process {os.getpid()} on "), lock_run(tmp_path):
        pass
    with lock_run(tmp_path):
        pass


def test_two_runs_that_start_at_once_have_folders_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the choice of a name and the making of the folder another run may take it."""
    taken, free = tmp_path / "run-1", tmp_path / "run-2"
    taken.mkdir()
    names = iter([taken, free])
    monkeypatch.setattr("search.study.run_folder.new_folder", lambda options: next(names))
    assert made_folder(parser().parse_args(["space.yaml"])) == free
    assert free.is_dir()


def test_a_place_that_holds_no_folders_is_bad_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As /proc, which may be written to by its rights."""

    def refuse(path: Path, *arguments: object, **options: object) -> None:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))

    monkeypatch.setattr("search.study.run_folder.new_folder", lambda options: tmp_path / "run")
    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(InputError, match=r"run: cannot be made: .*; --results DIR says where else"):
        made_folder(parser().parse_args(["space.yaml"]))


def test_a_link_to_a_folder_that_is_gone_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "space.yaml").write_text(SPACE)
    results = tmp_path / "results"
    results.symlink_to(tmp_path / "gone")
    words = [f"{tmp_path / 'space.yaml'}", "--results", f"{results}"]
    assert main(words) == 2
    assert f"cannot be made: {results}: not a folder; --results DIR says where else" in capsys.readouterr().err
    with pytest.raises(InputError, match=r"cannot be made: .*results"):  # where the link breaks after the check
        made_folder(parser().parse_args(words))


def test_a_new_run_never_touches_an_old_folder(
    run: Path, monkeypatch: pytest.MonkeyPatch, would_start: None, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    monkeypatch.chdir(run.parent.parent)
    Path("space.yaml").write_text(SPACE)
    assert main(["space.yaml", "--name", "run"]) == 2
    assert "exists already; choose another --name, or go on with it: --resume" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_a_plan_refuses_the_options_that_its_search_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("space.yaml").write_text(SPACE)
    assert main(["space.yaml", "--dry-run", "--nodes", "a=b"]) == 2
    assert "--nodes: only a cluster has nodes to choose from" in capsys.readouterr().err


def test_a_resume_plans_nothing(run: Path, would_start: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--resume", str(run), "--dry-run"]) == 2
    assert "--dry-run" in capsys.readouterr().err


def test_a_run_of_another_machine_is_not_gone_on_with(
    run: Path, would_start: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its rates have no place on a front with those of this one."""
    events = [json.loads(line) for line in (run / FILE_NAME).read_text().splitlines()]
    events[0]["machine"]["cpu_name"] = "another"
    (run / FILE_NAME).write_text("".join(json.dumps(event) + "\n" for event in events[:-1]))
    assert main(["--resume", str(run)]) == 2
    assert "made on another machine: cpu_name another there" in capsys.readouterr().err


def test_a_run_with_a_default_that_has_changed_is_not_gone_on_with(tmp_path: Path) -> None:
    """Its trials and new ones would be of two recipes, on one front."""
    changed = {"crop_padding": 4, "label_smoothing": 0.1, "momentum": 0.5}  # momentum is fixed by the space
    with pytest.raises(InputError, match="defaults have changed since the run began: crop_padding was 4; start a new"):
        check_same_defaults(tmp_path, RunState(typed(story(defaults=changed))).info)
    check_same_defaults(tmp_path, RunState(typed(story(defaults={"crop_padding": 2, "of_old": 1}))).info)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda events: events.append({**events[-2], "time": events[-1]["time"]}), "t0003 is complete already"),
        (lambda events: events[1]["config"].update(batch_size=63), "its configuration is not of this space"),
        (lambda events: events[1].update(trial_id="p0001"), "p0001, a train, cannot have been started there"),
        (lambda events: events.insert(2, dict(events[1])), "t0001, a train, cannot have been started there"),
        (lambda events: events[0].pop("machine"), "does not say machine"),
    ],
)
def test_a_journal_that_contradicts_itself_is_told_in_a_line_with_what_would_do(
    run: Path, spoil: Any, said: str, would_start: None, capsys: pytest.CaptureFixture[str]
) -> None:
    events = [json.loads(line) for line in (run / FILE_NAME).read_text().splitlines()]
    spoil(events)
    (run / FILE_NAME).write_text("".join(json.dumps(event) + "\n" for event in events))
    assert main(["--resume", str(run)]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def go_on(run: Path, *words: str) -> int:
    """The command of a job that may be started again at any time."""
    (run.parents[1] / "space.yaml").write_text(SPACE)
    return main(
        [str(run.parents[1] / "space.yaml"), "--results", str(run.parent), "--name", run.name, "--go-on", *words]
    )


def test_with_go_on_the_command_that_goes_on_is_the_same_command(run: Path) -> None:
    words = ["my space.yaml", "--name", "lr42", "--go-on"]
    same, other = (
        _resume_command(run, parser().parse_args(given, argparse.Namespace(words=given)))
        for given in (words, words[:-1])
    )
    assert same == "python -m search.run 'my space.yaml' --name lr42 --go-on"
    assert other == shlex.join(["python", "-m", "search.run", "--resume", str(run)])


def test_the_command_that_goes_on_has_the_same_nodes_and_no_dashboard_either(run: Path) -> None:
    nodes = ["--nodes", "pool=a100", "--wait-for-nodes", "5", "--ask-for-nodes", "2", "--no-dashboard"]
    options = parser().parse_args(["space.yaml", "--address", "auto", *nodes])
    command = shlex.split(_resume_command(run, options))
    assert command == ["python", "-m", "search.run", "--resume", str(run), "--address", "auto", *nodes]


@pytest.fixture
def begun(run: Path) -> Path:
    """The folder of a run of `SPACE` that came to its end."""
    shutil.rmtree(run)
    (run.parents[1] / "space.yaml").write_text(SPACE)
    simulate(run, load_space(run.parents[1] / "space.yaml", ["data.name=generated"]))
    return run


def test_one_command_begins_a_run_goes_on_with_it_and_repeats_its_end(
    begun: Path, would_start: None, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = (begun / FILE_NAME).read_bytes()
    assert go_on(begun) == 0
    assert "Pareto front: " in capsys.readouterr().out
    assert (begun / FILE_NAME).read_bytes() == journal
    assert go_on(begun, "--set", "budget.trials=9") == 2
    assert "Ray would be started" in capsys.readouterr().err
    (begun / FILE_NAME).write_bytes(b"".join(journal.splitlines(keepends=True)[:4]))
    assert go_on(begun) == 2
    assert "Ray would be started" in capsys.readouterr().err
    assert len((begun / FILE_NAME).read_bytes().splitlines()) == 4  # to be gone on with
    shutil.rmtree(begun)
    begun.mkdir()
    (begun / FILE_NAME).touch()  # killed before the first event
    assert go_on(begun) == 2
    assert "Ray would be started" in capsys.readouterr().err  # anew, in a folder that is not there yet
    assert not begun.exists()


@pytest.mark.parametrize(
    ("override", "other"),
    [
        ("searcher.seed=5", "searcher.seed 0"),
        ("fixed.seconds_per_epoch=0.2", "fixed.seconds_per_epoch 0.1"),
        ("parameters.learning_rate.max=0.7", "other parameters"),
        ("data.train_images=77", "data.train_images None"),
        ("data.name=cifar10", "data.name generated"),
    ],
)
def test_go_on_with_another_space_file_is_refused(
    override: str, other: str, begun: Path, would_start: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert go_on(begun, "--set", override) == 2
    told = capsys.readouterr().err
    assert f"was begun with {other}" in told
    assert "; give the same, or another --name" in told


def begun_with(space: Mapping[str, Any], left_out: Sequence[str] = ()) -> Opening:
    """The first event of a run with this space."""
    (first,) = typed([{**story()[0], "space": space, "left_out": [*left_out]}])
    assert isinstance(first, Opening)
    return first


def test_a_training_file_of_another_name_is_another_training(tmp_path: Path) -> None:
    """The run names the file by its place beside the run's folder, and the space file by its place on the disk."""
    asked = a_space()
    for recorded in ("replay", "../../replay"):
        check_same_space(tmp_path, begun_with({**asked.to_mapping(), "trainable": recorded}), asked)
    with pytest.raises(InputError, match="was begun with other trainable"):
        check_same_space(tmp_path, begun_with({**asked.to_mapping(), "trainable": "../train.py"}), asked)


def test_parameters_and_values_may_be_absent_from_a_run_only_where_the_machine_left_them_out(tmp_path: Path) -> None:
    whole = {"learning_rate": {"min": 0.01, "max": 0.1}, "precision": {"values": ["fp32", "bf16"]}}
    asked = a_space(parameters=whole)
    there = a_space(parameters={"precision": {"values": ["fp32"]}}).to_mapping()
    lines = ["learning_rate: left out, as optimizer sgd is not here", "precision bf16: too slow"]
    check_same_space(tmp_path, begun_with(there, lines), asked)
    for few in ([], lines[:1], lines[1:]):
        with pytest.raises(InputError, match="was begun with other parameters"):
            check_same_space(tmp_path, begun_with(there, few), asked)


@pytest.mark.parametrize(
    "file", [path for path in sorted(SPACES.glob("*.yaml")) if path.stem != "image_folder"], ids=lambda path: path.stem
)
def test_each_space_file_goes_on_with_what_it_is_on_a_machine_without_a_gpu(file: Path, tmp_path: Path) -> None:
    asked = load_space(file)
    there, left_out = for_machine(asked, Resources(cpus=2))
    check_same_space(tmp_path, begun_with(there.to_mapping(), left_out), asked)


@pytest.mark.parametrize("names", [["source/code.py"], [".owner", "notes.txt"]])
def test_go_on_removes_no_folder_of_others(names: list[str], run: Path, would_start: None) -> None:
    shutil.rmtree(run)
    for name in names:
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text("precious")
    assert go_on(run) == 2
    assert all((run / name).read_text() == "precious" for name in names)


def test_a_dry_run_and_a_bad_space_file_remove_nothing(run: Path, would_start: None) -> None:
    shutil.rmtree(run)
    (run / "source").mkdir(parents=True)
    (run / ".owner").touch()
    go_on(run, "--dry-run")
    assert go_on(run, "--set", "budget.trials=0") == 2
    assert (run / "source").is_dir()
    assert go_on(run) == 2
    assert not run.exists()


@pytest.mark.parametrize(
    ("now", "is_same"),
    [
        ("20 test; 2 classes, ant to bee", True),
        ("20 test; 2 classes, ant to bee; not used: pictures in extra2", True),
        ("20 test; 2 classes, ant to wasp", False),
        ("20 test; 2 classes, ant to bees", False),
        ("30 test; 2 classes, ant to bee", False),
    ],
)
@pytest.mark.parametrize("was", ["20 test; 2 classes, ant to bee", "20 test; 2 classes"])  # now, and before
def test_a_run_goes_on_with_the_same_data_alone(was: str, now: str, is_same: bool, tmp_path: Path) -> None:
    data = {"name": "folder", "description": f"folder of pictures: 90 train, 10 validation, {was}"}
    info = RunState(typed(story(data=data))).info
    now = f"folder of pictures: 90 train, 10 validation, {now}"
    if is_same or (", " in now.partition("classes")[2] and "bee" not in was and "30" not in now):
        check_same_data(tmp_path, info, "folder", now)
        return
    with pytest.raises(InputError, match=f"was {data['description']}, but {now} is what is here"):
        check_same_data(tmp_path, info, "folder", now)


def test_a_resume_says_which_trials_are_too_short_by_now() -> None:
    run_state = RunState(typed(story()))
    assert budget_changes(run_state, Budget(trials=16, epochs=3, hours=1.0)) == []
    *_, last = budget_changes(run_state, Budget(trials=16, epochs=5, hours=1.0))
    complete = run_state.counts()["complete"]
    assert last == f"{complete} complete trials of fewer epochs will not be compared with new ones"


def test_an_own_training_warns_of_other_files_than_before(tmp_path: Path) -> None:
    """It does not refuse: the training itself may have written them, such as a cache."""
    text = "dataset of mine.py (sha256 1a2b), from {} of {} bytes, newest 2026-11-{} 10:00:00 UTC"
    was = {"name": "folder", "description": text.format("2 files", 9, "01")}
    info = RunState(typed(story(data=was, trainable="mine.py", source="1a2b"))).info
    assert check_same_data(tmp_path, info, "folder", text.format("2 files", 9, "02")) is None  # a copy, or touched
    for now in (text.format("3 files", 9, "02"), text.format("2 files", 10, "02")):
        warning = check_same_data(tmp_path, info, "folder", now)
        assert f"was {was['description']}, but {now} is what is here; if samples differ" in f"{warning}"


def test_a_single_value_in_a_recorded_space_is_a_list_of_one(tmp_path: Path) -> None:
    parameters = {
        "batch_size": {"values": [32, 64], "likely": 64},
        "seconds_per_epoch": {"values": [0.1, 0.2], "when": {"batch_size": 64}},
    }
    asked = a_space(parameters=parameters, searcher={"name": "gp"}, fixed={})
    check_same_space(tmp_path, begun_with({**asked.to_mapping(), "parameters": parameters}), asked)


def test_go_on_needs_the_name_of_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["space.yaml", "--go-on"]) == 2
    assert "--go-on: needs a space file and the run's --name" in capsys.readouterr().err


@pytest.mark.parametrize("override", ["budget.trials=9", " budget.trials = 9", "budget={trials: 9, epochs: 3}"])
def test_go_on_extends_a_run_whose_budget_has_changed(
    override: str, begun: Path, would_start: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert go_on(begun, "--set", override) == 2
    assert "Ray would be started" in capsys.readouterr().err


def test_a_budget_changed_in_the_space_file_is_that_of_the_run(begun: Path) -> None:
    run_state = RunState(read_journal(begun / FILE_NAME))
    file = begun.parents[1] / "space.yaml"
    assert changed_budget(run_state, load_space(file)) == []
    file.write_text(SPACE.replace("trials: ", "trials: 1"))
    (changed,) = changed_budget(run_state, load_space(file))
    assert changed.startswith("budget.trials=1")
    file.write_text(f"{SPACE}without_gpu:\n  budget: {{hours: 2.0}}\n")
    assert changed_budget(run_state, load_space(file)) == ["budget.hours=2.0"]


def test_a_budget_changed_back_in_the_space_file_is_that_of_the_run(
    begun: Path, would_start: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was extended meanwhile, by this command or with --resume."""
    first, *_, last = read_journal(begun / FILE_NAME)
    budget = RunState([first]).budget
    extended = {"event": "resume", "time": last.time, "budget": {**budget.model_dump(), "trials": 50}, "command": []}
    with (begun / FILE_NAME).open("a") as journal:
        journal.write(f"{json.dumps(extended)}\n")
    for words, now in ((), budget.trials), (("--set", "budget.trials=51"), 51):
        assert go_on(begun, *words) == 2
        assert f"budget.trials was 50, and is {now} now" in capsys.readouterr().err


def test_new_trials_as_short_as_none_before_are_refused(
    run: Path, would_start: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """They would never be on the front, which compares trials of one length."""
    before = (run / FILE_NAME).read_bytes()
    assert main(["--resume", str(run), "--set", "budget.epochs=1", "--set", "budget.trials=9"]) == 2
    problem = "budget.epochs=1: 3 trials of up to 2 epochs would not be compared with shorter ones; give 2 or more"
    assert problem in capsys.readouterr().err
    assert (run / FILE_NAME).read_bytes() == before
    run_state = RunState(read_journal(run / FILE_NAME))
    check_length(run_state, Budget(trials=9, epochs=2))
    check_length(RunState(typed(story())), Budget(trials=9, epochs=3))


def test_a_folder_of_something_else_is_left_alone(
    tmp_path: Path, would_start: None, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "results" / "run"
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("mine")
    assert go_on(folder) == 2
    assert "exists already" in capsys.readouterr().err
    assert (folder / "notes.txt").read_text() == "mine"
