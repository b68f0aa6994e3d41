"""Searches of a user's training file: its check, its copy in the run's folder, and what holds when it changes."""

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

from search import memory, run
from search.exit_codes import InputError
from search.front.affects import is_learned
from search.front.roles import rate_metric, wanted_test_metrics
from search.page.page import write_page
from search.record import source, warm_start
from search.record.columns import describe_columns
from search.record.events import Opening
from search.report.report import write_summary
from search.results import load
from search.space.parsing import load_space, parse_space
from search.space.validation import SpaceError
from tests.search.runs import INFO, story, typed, write_run
from tests.trainables.own_files import LINEAR, written
from trainables.contract import source_of

BUDGET = {"trials": 16, "epochs": 3}
SPACE = """\
trainable: rows.py
objectives: [{metric: val_loss, goal: minimize}, {metric: rows_per_second, goal: maximize}]
parameters: {hidden: {values: [4, 8]}, batch_size: {values: [8, 16]}}
budget: {trials: 4}
"""


def _opening(info: dict[str, Any]) -> Opening:
    found = typed([{"event": "run", **info}])[0]
    assert isinstance(found, Opening)
    return found


def space_file(folder: Path, text: str = SPACE) -> Path:
    (folder / "space.yaml").write_text(text)
    return folder / "space.yaml"


def test_the_file_is_found_beside_the_space_file_and_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, "rows.py", ("import torch", "raise SystemExit(5)\nimport torch"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    started = time.monotonic()
    space = load_space(space_file(tmp_path))
    assert space.trainable == str(tmp_path / "rows.py")
    assert time.monotonic() - started < 5  # milliseconds, on a quiet machine
    assert space.parameters["hidden"].contains(4)


RAISES = ("def network(hidden):\n", "def network(hidden):\n    assert hidden != 8, 'eight'\n")


def test_the_plan_says_which_configuration_could_not_be_timed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path, "rows.py", RAISES)
    assert run.main([str(space_file(tmp_path)), "--dry-run"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert "could not be timed: hidden=8 batch=16: AssertionError: eight" in lines
    assert any(re.fullmatch(r"[\d,]+ \w+/s  hidden=4 batch=8", line) for line in lines)


def test_the_plan_has_the_error_where_no_configuration_could_be_timed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path, "rows.py", (RAISES[0], RAISES[1].replace("hidden != 8", "False")))
    assert run.main([str(space_file(tmp_path)), "--dry-run"]) == 2
    out, err = capsys.readouterr()
    assert re.search(r"no configuration that was tried can be trained: AssertionError: eight \(rows\.py:\d+\)\n$", err)
    text = " ".join(out.split())
    assert re.search(r"not estimated: AssertionError: eight \(rows\.py:\d+\) \(hidden=8, batch_size=16\)", text)


def test_data_that_are_not_there_are_told_with_the_place_that_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path, "rows.py", ("return Rows(part)", 'return open("nothing.csv")'))
    space = space_file(tmp_path)
    assert run.main([f"{space}", "--dry-run"]) == 2
    assert re.search(r"FileNotFoundError: .*nothing\.csv.*\(rows\.py:\d+\)\n$", capsys.readouterr().err)
    space.write_text(space.read_text() + "data: {root: /nothing}\n")
    assert run.main([f"{space}", "--dry-run"]) == 2
    line = space.read_text().count("\n")
    assert capsys.readouterr().err == f"{space}:{line}: data.root: /nothing: no such file or folder\n"


def test_the_memory_of_a_network_that_raises_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path, "rows.py", ("return Rows(part)", "return Row(part)"))
    assert memory.main(["--trainable", str(tmp_path / "rows.py")]) == 2
    assert re.fullmatch(r"search.memory: NameError: name 'Row' is .*\(rows\.py:\d+\)\n", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("PARAMETERS = {", "PARAMETERS = {'a b': 1, "), r"rows\.py:5: PARAMETERS: 'a b' is no name"),
        (("def network(hidden):", "def network(hidden:"), r"rows\.py:2\d: "),
        (("def loss", "def lost"), r"rows\.py: no function loss"),
    ],
)
def test_a_mistake_in_the_file_has_the_files_own_place(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    written(tmp_path, "rows.py", change)
    with pytest.raises(SpaceError, match=message):
        load_space(space_file(tmp_path))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("hidden: {", "hiden: {", r'space\.yaml:3: parameters\.hiden: .*did you mean "hidden"'),
        ("val_loss", "val_lost", r'space\.yaml:2: .*reports no "val_lost"; did you mean "val_loss"'),
        ("rows.py", "none.py", r'space\.yaml:1: trainable: found "none\.py": no such file'),
    ],
)
def test_a_mistake_in_the_space_file_has_its_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    written(tmp_path, "rows.py")
    with pytest.raises(SpaceError, match=message):
        load_space(space_file(tmp_path, SPACE.replace(old, new)))


def test_the_run_has_a_copy_of_the_file_and_of_what_it_imports(tmp_path: Path) -> None:
    written(tmp_path, "helpers_of_rows.py", text="x = 1\n")
    found = source_of(written(tmp_path, "rows.py", ("import torch", "import helpers_of_rows, torch")))
    source.save_source(found, tmp_path / "run")
    assert (tmp_path / "run/source/rows.py").read_bytes() == (tmp_path / "rows.py").read_bytes()
    assert (tmp_path / "run/source/helpers_of_rows.py").exists()


def test_a_run_goes_on_with_the_same_file_alone(tmp_path: Path) -> None:
    path = Path(written(tmp_path, "rows.py"))
    found, run = source_of(str(path)), tmp_path / "results/run"
    source.save_source(found, run)
    recorded = source.recorded_name(str(path), tmp_path / "results")
    assert recorded == "../../rows.py"
    assert source.recorded_file(recorded, found.digest, run) == str(path)
    assert source.usable_file(str(path), found.digest, run) == str(path)
    path.rename(tmp_path / "moved.py")
    assert source.recorded_file(recorded, found.digest, run) == str(run / "source/rows.py")


def test_a_file_that_has_changed_is_refused_by_name_and_not_used(tmp_path: Path) -> None:
    run = tmp_path / "results/run"
    source.save_source(source_of(written(tmp_path, "rows.py")), run)
    before, changed = "0123456789abcdef", str(tmp_path / "rows.py")
    with pytest.raises(InputError, match=rf"{changed}: has changed since the run began \(sha256 {before}"):
        source.recorded_file("../../rows.py", before, run)
    assert source.usable_file(changed, before, run) == str(run / "source/rows.py")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rwos.py", 'found "rwos.py": no such file; did you mean "rows.py"?'),
        ("rows", 'found "rows": no such trainable; did you mean "rows.py"?'),
        ("nowhere/rows.py", 'found "nowhere/rows.py": no such file; did you mean "rows.py"?'),
        ("more/row.py", 'found "more/row.py": no such file; did you mean "more/rows.py"?'),
        ("folder.py", 'found "folder.py": no such file; there is rows.py'),
    ],
)
def test_a_file_that_is_not_there_is_told_with_the_line_and_the_nearest_one(
    name: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "more").mkdir()
    for folder in (tmp_path, tmp_path / "more"):
        written(folder, "rows.py")
    (tmp_path / "rows.yaml").write_text(SPACE.replace("trainable: rows.py", f"# rows\ntrainable: {name}"))
    with pytest.raises(SpaceError) as refusal:
        load_space(tmp_path / "rows.yaml")
    assert str(refusal.value) == f"{tmp_path}/rows.yaml:2: trainable: {message}"


def test_what_an_earlier_version_of_the_file_measured_counts_as_elsewhere(tmp_path: Path) -> None:
    """The story's run, as if it were of a file."""
    space = parse_space(
        {**INFO["space"], "trainable": "vgg19_cifar10", "objectives": INFO["objectives"], "budget": BUDGET}
    )
    before = story()
    before[0]["source"] = "a" * 16
    folder = write_run(tmp_path / "before", before)
    same, other = (_opening({**INFO, "source": digest}) for digest in ("a" * 16, "b" * 16))
    recalled = {
        digest: [bool(known["metrics"]) for known in warm_start.all_measurements(space, opening, [folder])]
        for digest, opening in (("same", same), ("other", other))
    }
    assert all(recalled["same"])
    assert recalled["other"]
    assert not any(recalled["other"])


def test_a_run_is_read_where_its_file_is_gone(tmp_path: Path) -> None:
    units = {"val_loss": "nats", "tokens_per_second": "tokens/s", "tokens_per_second_low": "tokens/s"}
    objectives = [{"metric": "val_loss", "goal": "minimize"}, {"metric": "tokens_per_second", "goal": "maximize"}]
    info = {"trainable": "../../gone.py", "source": "a" * 16, "metrics": units, "objectives": objectives}
    info |= {"data": {"name": "folder", "description": "dataset of gone.py (sha256 aaaaaaaaaaaaaaaa)"}}
    rename = {"val_accuracy": "val_loss", "images_per_second": "tokens_per_second"}
    text = json.dumps([{**event, **(info if event["event"] == "run" else {})} for event in story(constraints=[])])
    for old, new in rename.items():
        text = text.replace(f'"{old}', f'"{new}')
    folder = write_run(tmp_path / "results/run", json.loads(text))
    run = load(folder)
    assert run.state.rate_metric == "tokens_per_second"
    write_summary(run)
    summary = (folder / "summary.md").read_text()
    assert "fastest" in summary
    assert not re.search("image|picture|decode|--data", summary)
    page = write_page(run).read_text()
    assert not re.search("images?[ /]|picture", page)
    assert "tokens per joule" in page
    assert "source/gone.py" in summary
    assert "tokens/s" in describe_columns(run.trials.columns, run.info.trainable, run.info.metrics)
    assert not os.path.exists(tmp_path / "gone.py")


def test_roles_are_known_by_names() -> None:
    units = {"memory_gib_per_second": "", "tokens_per_second": "", "tokens_per_second_low": ""}
    assert rate_metric(units) == "tokens_per_second"
    assert rate_metric({}) == "images_per_second"
    assert wanted_test_metrics(["val_loss", "x"], ["test_loss", "test_accuracy", "test_f1"]) == [
        "test_loss",
        "test_accuracy",
    ]
    assert is_learned("gone.py", "val_f1")
    assert is_learned("gone.py", "seconds_to_val_mae_0.1")  # of training, whatever is to be reached
    assert not is_learned("gone.py", "tokens_per_second")
    assert not is_learned("gone.py", "throughput_tokens")
    assert not is_learned("gone.py", "peak_memory_gib")
    assert is_learned("gone.py", "quality")
    assert not is_learned("gone.py", "quality", probed=["quality"])


def test_the_file_of_these_tests_is_a_training_file(tmp_path: Path) -> None:
    assert "hidden" in LINEAR
    load_space(space_file(Path(written(tmp_path, "rows.py")).parent))
