"""Faults of the journal: cut at any byte, a byte changed in the middle, lost lines, files of no length beside it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from search.record.events import Start
from search.record.journal import FILE_NAME, Journal, read_journal, steady_clock
from search.results import load
from search.run import main
from search.study.shutdown import write_results
from tests.faults.simulation import a_space, simulate


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that came to its end."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    simulate(folder, a_space())
    return folder


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(whole, tmp_path / "run"))


def lines_of(folder: Path) -> list[bytes]:
    return (folder / FILE_NAME).read_bytes().splitlines(keepends=True)


def test_a_journal_cut_at_any_byte_of_its_last_record_loses_that_one_alone_and_goes_on(run: Path) -> None:
    """Also the next record, which a resume appends, is whole."""
    path, lines = run / FILE_NAME, lines_of(run)
    before = len(lines) - 1
    for size in range(len(lines[-1]) + 1):
        path.write_bytes(b"".join(lines[:-1]) + lines[-1][:size])
        kept = before + (size >= len(lines[-1]) - 1)  # without its newline it is all there
        assert len(read_journal(path)) == kept
        with Journal(path) as journal:
            journal.append("resume", command=[])
        assert [event.event for event in read_journal(path)[kept - 1 :]][-1] == "resume"
        assert len(read_journal(path)) == kept + 1


@pytest.mark.parametrize("event", ["start", "measurement", "finish"])
def test_a_run_cut_off_within_any_record_goes_on_to_what_it_would_have_been(
    whole: Path, tmp_path: Path, event: str
) -> None:
    lines = lines_of(whole)
    at = [i for i, line in enumerate(lines) if f'"{event}"'.encode() in line][2]
    for size in (1, len(lines[at]) // 2, len(lines[at]) - 2):
        folder = tmp_path / f"{size}"
        (folder / "trials").mkdir(parents=True)
        (folder / FILE_NAME).write_bytes(b"".join(lines[:at]) + lines[at][:size])
        simulate(folder, a_space())
        ours, theirs = load(folder).trials, load(whole).trials
        assert ours["config.learning_rate"].tolist() == theirs["config.learning_rate"].tolist()
        assert ours.val_accuracy.tolist() == theirs.val_accuracy.tolist()
        assert ours.state.tolist() == ["complete"] * 6


def test_a_line_damaged_in_the_middle_is_told_once_with_its_place_and_costs_nothing_else(
    run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = lines_of(run)
    at = next(i for i, line in enumerate(lines) if b'"measurement"' in line and b"t0003" in line)
    damaged = lines[at].replace(b'"epoch"', b'"ep\x00ch"')
    (run / FILE_NAME).write_bytes(b"".join([*lines[:at], damaged, *lines[at + 1 :]]))
    for _ in range(3):
        events = read_journal(run / FILE_NAME)
    assert len(events) == len(lines) - 1
    write_results(run)
    assert [record.message for record in caplog.records] == [
        f"{run / FILE_NAME}:{at + 1}: no JSON object, or not all of one; this line is left out"
    ]


def test_several_damaged_lines_are_one_warning(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines = lines_of(run)
    for at in (3, 5, 7):
        lines[at] = b"{" + lines[at]
    (run / FILE_NAME).write_bytes(b"".join(lines))
    read_journal(run / FILE_NAME)
    assert len(caplog.records) == 1
    assert f"{FILE_NAME}:4: " in caplog.text
    assert "and 2 more that are damaged" in caplog.text


@pytest.mark.parametrize("byte", [0x00, 0x22, 0x0A, 0x7F, 0xFF])
def test_any_changed_byte_costs_at_most_its_record(run: Path, byte: int) -> None:
    """Whichever it is, each other record is read; the run can be shown, and goes on or says in a line why not."""
    lines = lines_of(run)
    at = len(lines) // 2
    start = sum(map(len, lines[:at]))
    content = (run / FILE_NAME).read_bytes()
    others = {json.loads(line)["time"] for i, line in enumerate(lines) if i != at}
    for place in range(start, start + len(lines[at]) - 1, 3):
        (run / FILE_NAME).write_bytes(content[:place] + bytes([byte]) + content[place + 1 :])
        assert others <= {event.time for event in read_journal(run / FILE_NAME)}
        assert len(load(run).trials) > 0


def test_the_trial_whose_start_is_lost_is_left_out_and_made_up_for(run: Path) -> None:
    """No number is given twice, no configuration is tried twice, and the total is right."""
    lines = lines_of(run)
    at = next(i for i, line in enumerate(lines) if b'"start"' in line and b"t0003" in line)
    (run / FILE_NAME).write_bytes(b"".join(lines[:at] + lines[at + 1 :]))
    events = simulate(run, a_space())
    starts = [event.trial_id for event in events if isinstance(event, Start)]
    assert starts == ["t0001", "t0002", "t0004", "t0005", "t0006", "t0007"]
    trials = load(run).trials
    assert trials.state.tolist() == ["complete"] * 6
    assert trials["config.learning_rate"].is_unique


def test_of_a_grid_the_point_whose_start_is_lost_is_run_again(tmp_path: Path) -> None:
    keys = {"parameters": {"batch_size": {"values": [64, 128, 256]}}, "searcher": {"name": "grid"}}
    space = a_space(**keys, budget={"epochs": 1})
    simulate(tmp_path / "run", space)
    lines = lines_of(tmp_path / "run")
    (tmp_path / "run" / FILE_NAME).write_bytes(
        b"".join(line for line in lines if not (b'"start"' in line and b"2" in line and b"t0002" in line))
    )
    simulate(tmp_path / "run", space)
    assert sorted(load(tmp_path / "run").trials["config.batch_size"].tolist()) == [64, 128, 256]


WRITTEN = ["trials.csv", "summary.md", "front.parquet"]


@pytest.mark.parametrize("name", [FILE_NAME, *WRITTEN, ".trials.csv.partial", "x"])
def test_files_of_no_length(run: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty journal is no run, in a line; other empty files are nothing to a run."""
    (run / name).write_bytes(b"")
    if name == FILE_NAME:
        assert main(["--resume", str(run)]) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert "no event" in err
    else:
        write_results(run)
        assert len(load(run).trials) == 6
        assert name not in WRITTEN or (run / name).stat().st_size > 0


def test_a_folder_in_which_no_run_began_says_what_to_do_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a kill leaves it between the making of the folder and the first line."""
    from tests.faults.processes import SPACE

    monkeypatch.chdir(tmp_path)
    (tmp_path / "space.yaml").write_text(SPACE)
    (tmp_path / "results" / "run").mkdir(parents=True)
    (tmp_path / "results" / "run" / FILE_NAME).touch()
    assert main(["space.yaml", "--name", "run", "--dry-run"]) == 2
    assert "remove it: no run began there" in capsys.readouterr().err


def test_a_journal_that_is_deleted_or_replaced_takes_no_more_events(tmp_path: Path) -> None:
    """Its file would go on to exist for the process alone, and all that is written would be lost with it."""
    path = tmp_path / FILE_NAME
    with Journal(path) as journal:
        journal.append("resume")
        path.unlink()
        with pytest.raises(FileNotFoundError):
            journal.append("end")
    with Journal(path) as journal:
        path.rename(tmp_path / "elsewhere")
        path.touch()
        with pytest.raises(FileNotFoundError, match="replaced"):
            journal.append("end")


def test_times_do_not_go_back_when_the_clock_is_set_back(tmp_path: Path) -> None:
    wall, running = iter([1000.0]), iter([5.0, 6.0, 9.0])
    with Journal(tmp_path / FILE_NAME, clock=steady_clock(lambda: next(wall), lambda: next(running))) as journal:
        assert [journal.append("resume").time, journal.append("end").time] == [1001.0, 1004.0]


def test_a_journals_clock_is_such_a_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("search.record.journal.steady_clock", lambda: lambda: 7.0)
    with Journal(tmp_path / FILE_NAME) as journal:
        assert journal.append("end").time == 7.0
