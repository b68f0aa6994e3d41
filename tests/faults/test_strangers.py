"""Input from anyone: journals, space files and --set strings that nobody sane would write. One line each, no hang."""

from __future__ import annotations

import contextlib
import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from search.exit_codes import InputError
from search.record.journal import FILE_NAME
from search.report.report import closing_lines
from search.results import load
from search.run import main
from search.study.shutdown import write_results
from tests.faults.processes import SPACE
from tests.faults.simulation import a_space, simulate
from tests.search.runs import story, write_run

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([-1, 0, 2**31, 2**63, 10**400]),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["../../x", "t0001", "\x1b[2J", "\ud800", "<script>", "__import__('os')", "nan"]),
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
)
few = settings(
    max_examples=15, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
many = settings(few, max_examples=100)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Of everything within a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


@st.composite
def tampered(draw: st.DrawFn, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events with up to three things missing or replaced, or an event gone, doubled or moved."""
    events = copy.deepcopy(events)
    for _ in range(draw(st.integers(1, 3))):
        number = draw(st.one_of(st.just(0), st.integers(0, len(events) - 1)))
        match draw(st.sampled_from(["lose", "replace", "replace", "replace", "drop", "double", "swap"])):
            case "drop":
                del events[number]
            case "double":
                events.insert(number, copy.deepcopy(events[number]))
            case "swap":
                events.append(events.pop(number))
            case what:
                path = draw(st.sampled_from(list(places(events[number]))))
                inner: Any = events[number]
                for key in path[:-1]:
                    inner = inner[key]
                if what == "lose":
                    del inner[path[-1]]
                else:
                    inner[path[-1]] = draw(values)
    return events


def shown_or_refused_in_a_line(folder: Path) -> None:
    """Whoever reads a run does it this way: an error of these kinds is printed as it is."""
    refused = None
    try:
        load(folder)
        closing_lines(write_results(folder))
    except (FileNotFoundError, ValueError) as error:
        refused = error
    assert type(refused) in (type(None), FileNotFoundError, ValueError), repr(refused)
    assert "\n" not in str(refused)


def told_in_lines(err: str) -> bool:
    """Return whether this is one line, or a line with its place for each problem."""
    return err.count("\n") == 1 or (bool(err) and all(": " in line for line in err.splitlines()))


def resumed_or_refused_in_a_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Up to the moment at which Ray would be started."""
    code = main(["--resume", str(folder), "--no-dashboard"])
    out, err = capsys.readouterr()
    assert code in (0, 1, 2), err
    assert code != 2 or (out == "" and told_in_lines(err)), err


@pytest.fixture
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def connected(*arguments: Any) -> Iterator[None]:
        raise InputError("Ray would be started")
        yield

    monkeypatch.setattr("search.run._connected", connected)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """A run of this machine, not at its end."""
    folder = tmp_path_factory.mktemp("own") / "run"
    simulate(folder, a_space(budget={"trials": 3, "epochs": 2}))
    return [json.loads(line) for line in (folder / FILE_NAME).read_text().splitlines()][:-3]


# --- journals ---------------------------------------------------------------------------------------------------------


@few
@given(data=st.data())
def test_a_journal_from_someone_else_is_shown_or_refused(data: st.DataObject, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", data.draw(tampered(json.loads(json.dumps(story())))))
    shown_or_refused_in_a_line(folder)


@pytest.mark.slow
@many
@given(data=st.data())
def test_many_journals_from_someone_else(data: st.DataObject, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", data.draw(tampered(json.loads(json.dumps(story())))))
    shown_or_refused_in_a_line(folder)


@pytest.mark.parametrize(
    ("section", "value"),
    [
        ("parameters", {"learning_rate": {"min": 0.1, "max": 0.2, "when": 5}}),
        ("parameters", {"learning_rate": {"min": 0.1}}),
        ("parameters", {"learning_rate": {"min": "low", "max": 1}}),
        ("constraints", ["fast"]),
        ("budget", 5),
        ("trainable", ["replay"]),
    ],
)
def test_a_space_in_a_journal_that_makes_no_sense_is_refused_in_a_line(
    section: str, value: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *others = story()
    folder = write_run(tmp_path / "run", [{**first, "space": {**first["space"], section: value}}, *others])
    assert main(["--resume", str(folder)]) == 2
    err = capsys.readouterr().err
    assert f"not the journal of a run: line 1: space.{section}" in err
    assert err.count("\n") == 1


@settings(few, max_examples=60)
@given(data=st.data())
def test_a_run_from_someone_else_goes_on_or_is_refused(
    data: st.DataObject, tmp_path: Path, own: list[dict[str, Any]], no_ray: None, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_run(tmp_path / "run", data.draw(tampered(own)))
    resumed_or_refused_in_a_line(folder, capsys)
    assert {path.name for path in tmp_path.iterdir()} == {"run"}, "nothing is written elsewhere"


@pytest.mark.slow
@many
@given(data=st.data())
def test_many_runs_from_someone_else(
    data: st.DataObject, tmp_path: Path, own: list[dict[str, Any]], no_ray: None, capsys: pytest.CaptureFixture[str]
) -> None:
    resumed_or_refused_in_a_line(write_run(tmp_path / "run", data.draw(tampered(own))), capsys)


@few
@given(content=st.binary(max_size=200) | st.text().map(lambda text: text.encode()))
def test_what_is_no_journal_at_all_is_refused(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    shown_or_refused_in_a_line(tmp_path)
    resumed_or_refused_in_a_line(tmp_path, capsys)


@pytest.mark.parametrize("depth", [1000, 100_000])
def test_a_line_nested_without_end_is_a_damaged_line(depth: int, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", story())
    with (folder / FILE_NAME).open("a") as file:
        file.write("[" * depth + "\n")
    assert len(load(folder).trials) == 12


@pytest.mark.parametrize("trial_id", ["../../outside", "/etc/x", "t1/../..", "", ".", "t0001\n"])
def test_names_in_a_journal_do_not_lead_out_of_the_folder(
    trial_id: str, tmp_path: Path, own: list[dict[str, Any]], no_ray: None
) -> None:
    """A trial's name is the name of a folder, whose checkpoints are deleted when they are not wanted any more."""
    events = [{**e, "trial_id": trial_id} if e.get("trial_id") == "t0002" else e for e in own]
    folder = write_run(tmp_path / "results" / "run", events)
    main(["--resume", str(folder)])
    assert trial_id not in load(folder).trials.trial_id.tolist()
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


def test_what_a_terminal_would_obey_is_not_printed(tmp_path: Path) -> None:
    events = json.loads(json.dumps(story()))
    for event in events:
        if event["event"] == "finish":
            event["reason"] = "\x1b]0;owned\x07 \x9b2J"
    folder = write_run(tmp_path / "run", events)
    run = write_results(folder)
    assert not {"\x1b", "\x07", "\x9b"} & set((folder / "summary.md").read_text() + closing_lines(run))


# --- space files and --set --------------------------------------------------------------------------------------------


def planned_or_refused_in_a_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code = main([*arguments, "--dry-run"])
    out, err = capsys.readouterr()
    assert code in (0, 2)
    assert code == 0 or (out == "" and told_in_lines(err)), err


@few
@given(data=st.data())
def test_a_space_file_from_someone_else_is_planned_or_refused(
    data: st.DataObject, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a piece of it replaced by another text."""
    first = data.draw(st.integers(0, len(SPACE) - 1))
    last = data.draw(st.integers(first, min(first + 20, len(SPACE))))
    piece = data.draw(
        st.text(max_size=10)
        | st.sampled_from(
            ["&a [*a]", "<<: *x", "!!python/name:os.system ", "? ", "- ", "{", "1e999", "0x" + "f" * 5000]
        )
    )
    (tmp_path / "space.yaml").write_text(SPACE[:first] + piece + SPACE[last:], encoding="utf-8")
    planned_or_refused_in_a_line([str(tmp_path / "space.yaml")], capsys)


KEYS = [
    *("budget.trials", "budget", "fixed.x", "parameters.x", "parameters.learning_rate.min", "data.name", "x", "a..b"),
    *("objectives", "searcher.seed", "concurrent_trials", "without_gpu.budget.trials", "constraints", "trainable"),
]
keys = st.sampled_from(KEYS)
ODD = ["[", "{a: &a [*a]}", "!!python/object:os.system x", "1e999", "-", "|"]
texts = st.text(max_size=12) | st.sampled_from(ODD)


@few
@given(override=st.text(max_size=20) | st.tuples(keys, texts | scalars.map(str)).map("=".join))
def test_any_set_string_is_planned_or_refused(
    override: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "space.yaml").write_text(SPACE)
    planned_or_refused_in_a_line([str(tmp_path / "space.yaml"), f"--set={override}"], capsys)


EXTENDING = ["budget.trials", "budget.epochs", "budget.hours", "budget.total_epochs", "budget.x", "budget", "data.root"]


@few
@given(
    key=st.sampled_from([*EXTENDING, "data.name", "fixed.x", "x"]),
    text=(texts | scalars.map(str)).map(lambda text: text.encode("utf-8", "replace").decode()),
)
def test_any_set_string_of_a_resumed_run_is_taken_or_refused(
    key: str, text: str, tmp_path: Path, own: list[dict[str, Any]], no_ray: None, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_run(tmp_path / "run", own)
    assert main(["--resume", str(folder), f"--set={key}={text}"]) == 2
    out, err = capsys.readouterr()
    assert out == "", out
    assert told_in_lines(err), err
    may_change = key == "data.root" or key.startswith("budget.")
    assert ("a resumed run keeps its" in err) != may_change, err


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{this}: &{this} [{', '.join([f'*{last}'] * 9)}]\n" for last, this in zip("abcdefghi", "bcdefghij", strict=True)
)
GRID = "trainable: replay\nobjectives: [{metric: a, goal: maximize}, {metric: b, goal: minimize}]\n"
GRID += (
    "searcher: {name: grid}\nparameters: {" + ", ".join(f"p{i}: {{values: [1, 2, 3, 4, 5]}}" for i in range(20)) + "}\n"
)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (BOMB, "more than 20,000 values"),  # 9 to the 10th
        ("a: &a [*a]\n", 'unknown key "a"'),
        ("{" + "a: {" * 300 + "}" * 301, "maximum recursion depth exceeded"),
        ("fixed: {x: 0x" + "f" * 6000 + "}", "more than 64 bits"),
        ("[" * 1200, "maximum recursion depth exceeded"),
        ("a:" * 3000, ""),
        ("fixed: " + "{x: " * 40 + "1" + "}" * 40, "deeper than 30 levels"),
        ("# " + "x" * 2_000_000, "more than 1,048,576 bytes"),
        (GRID, "a grid of"),
    ],
    ids=["bomb", "itself", "braces", "digits", "brackets", "colons", "deep", "large", "grid"],
)
@pytest.mark.timeout(20)
def test_a_space_file_that_would_take_for_ever_is_refused(
    text: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "space.yaml").write_text(text)
    assert main([str(tmp_path / "space.yaml"), "--dry-run"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert why in err


@pytest.mark.parametrize("old", ["trials: 8", "seconds_per_epoch: 0.1", "trainable: replay", "max: 0.5"])
@pytest.mark.parametrize("number", ["0x" + "f" * 6000, "1" + "0" * 400], ids=["hexadecimal", "decimal"])
def test_a_number_of_hundreds_of_digits_is_refused_wherever_it_stands(
    old: str, number: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "space.yaml").write_text(SPACE.replace(old, f"{old.partition(':')[0]}: {number}"))
    assert main([str(tmp_path / "space.yaml"), "--dry-run"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "found a whole number of more than 64 bits" in err


@pytest.mark.parametrize("name", ["../x", "a/b", "/x", "..", ".", ""])
def test_a_runs_name_is_no_path(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "space.yaml").write_text(SPACE)
    before = sorted(tmp_path.rglob("*"))
    assert main([str(tmp_path / "space.yaml"), "--results", str(tmp_path / "results"), f"--name={name}"]) == 2
    assert "a name, not a path" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("stem", ["..", "...", "-rf", "a b", "prüfung"])
def test_whatever_a_space_file_is_called_its_run_is_within_the_results(
    stem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from search.run_options import parser
    from search.study.run_folder import new_folder

    path = tmp_path / f"{stem}.yaml"
    path.write_text(SPACE)
    folder = new_folder(parser().parse_args(["--results", str(tmp_path / "results"), "--", str(path)]))
    assert folder.resolve().parent == tmp_path / "results"


def test_a_checkpoint_cannot_execute_anything(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    import torch

    from trainables import checkpoint

    class Owned:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "owned",))

    torch.save({"network": {}, "epoch": 1, "metrics": {}, "state": {"x": Owned()}}, tmp_path / checkpoint.FILE_NAME)
    assert checkpoint.load(tmp_path, {}) is None
    assert not (tmp_path / "owned").exists()
    assert "cannot be read" in caplog.text


def test_a_copied_run_takes_nothing_of_its_old_place(tmp_path: Path, own: list[dict[str, Any]]) -> None:
    folder = write_run(tmp_path / "run", own)
    shutil.copytree(folder, tmp_path / "copy")
    shutil.rmtree(folder)
    write_results(tmp_path / "copy")
    assert f"{folder}" not in (tmp_path / "copy" / "summary.md").read_text()
