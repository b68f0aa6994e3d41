"""The list of runs: as text, as JSON and as a page."""

import json
import os
from pathlib import Path

import pytest

from search.record.run_end import GAVE_UP
from search.record.run_lock import is_locked, lock_run
from search.runs.__main__ import main
from search.runs.listed_run import list_runs
from tests.search.page_runs import throughput
from tests.search.runs import INFO, Recorder, config, interval, story, write_run


@pytest.fixture
def folder(tmp_path):
    """Four runs, one of which cannot be read, and a folder that is none."""
    runs = tmp_path / "runs"
    write_run(runs / "cifar", story())
    write_run(runs / "h200 <b>", throughput(trials=12).events)
    write_run(runs / "other", throughput(trials=8, finished=False, space_file="spaces/other.yaml").events)
    (runs / "damaged").mkdir()
    (runs / "damaged" / "journal.jsonl").write_text('{"event": "start", "time": 1.0}\n')
    (runs / "none").mkdir()
    (runs / "h200 <b>" / "report.html").write_text("a report")
    return runs


def listed(capsys, *arguments):
    assert main(list(map(str, arguments))) == 0
    return capsys.readouterr().out


def test_json_has_each_run_with_its_state_front_and_cost(capsys, folder):
    found = {run["name"]: run for run in json.loads(listed(capsys, folder, "--json"))}
    assert {name: run["state"] for name, run in found.items()} == {
        "cifar": "ended",
        "h200 <b>": "ended",
        "other": "interrupted",
        "damaged": "unreadable",
    }
    run = found["cifar"]
    assert run["front"] == ["t0003", "t0007", "t0011"]
    assert run["best"]["images_per_second"] == {"value": 401.0, "trial": "t0011"}
    assert run["began"].startswith("2026-11-20T18:40")
    assert run["trials"]["complete"] == 6
    assert run["gpu_hours"] == 0
    gpu = found["h200 <b>"]
    assert gpu["machine"] == "1 x NVIDIA H200"
    assert 0 < gpu["gpu_hours"] < gpu["hours"]
    assert "expected" in found["damaged"]["reason"] or "run event" in found["damaged"]["reason"]


def test_a_metric_that_runs_take_in_both_directions_has_two_columns(capsys, tmp_path):
    for goal in ("maximize", "minimize"):
        recorder = Recorder(name=goal, objectives=[{"metric": "val_accuracy", "goal": goal}, INFO["objectives"][1]])
        recorder.complete("t0001", [0.5], 100.0, config())
        write_run(tmp_path / goal, recorder.events)
    text = " ".join(listed(capsys, tmp_path).split())
    assert "val_accuracy ↑" in text
    assert "val_accuracy ↓" in text
    assert text.count("0.5000") == 2  # each run in one of the two


def test_a_run_that_ray_tune_gave_up_was_interrupted(folder):
    write_run(
        folder / "given up", [*throughput(finished=False).events, {"event": "end", "time": 2e9, "reason": GAVE_UP}]
    )
    assert next(run for run in list_runs(folder) if run.name == "given up").state == "interrupted"


def test_a_locked_folder_is_running_and_a_look_at_it_does_not_keep_others_out(folder):
    with lock_run(folder / "other"):
        assert is_locked(folder / "other")
        assert next(run for run in list_runs(folder) if run.name == "other").state == "running"
    assert not is_locked(folder / "other")
    with lock_run(folder / "other"):
        pass


def test_text_fits_80_columns_and_names_what_cannot_be_read(capsys, folder):
    text = listed(capsys, folder)
    assert max(len(line) for line in text.splitlines() if str(folder) not in line) <= 80
    assert "| cifar " in text
    assert "Cannot be read: 1" in text
    assert f"{folder}/damaged" in text


def test_a_folder_that_cannot_be_read_hides_no_other(capsys, folder, monkeypatch):
    is_file = Path.is_file

    def denied(path, **more):
        if path.parent.name == "other":
            raise PermissionError(13, "Permission denied", str(path))
        return is_file(path, **more)

    monkeypatch.setattr(Path, "is_file", denied)
    states = {run["name"]: run["state"] for run in json.loads(listed(capsys, folder, "--json"))}
    assert states["other"] == "unreadable"
    assert states["cifar"] == "ended"


@pytest.mark.parametrize(
    ("where", "names"),
    [
        ("state=ended", {"cifar", "h200 <b>"}),
        ("space=throughput,machine=h200", {"h200 <b>"}),
        ("name=OTHER", {"other"}),
        ("owner=nobody here", set()),
    ],
)
def test_where_keeps_the_runs_that_have_each_text(capsys, folder, where, names):
    assert {run["name"] for run in json.loads(listed(capsys, folder, "--json", "--where", where))} == names


def test_a_list_without_runs_says_of_how_many_none_is_meant(capsys, folder):
    said = f"{folder}: no run with owner=nobody here among 4 runs\n"
    assert listed(capsys, folder, "--where", "owner=nobody here") == said
    assert listed(capsys, folder / "none") == f"{folder}/none: no runs\n"


def test_a_question_mark_is_explained_where_there_is_one(capsys, folder):
    assert "question mark" not in listed(capsys, folder)
    recorder = Recorder()
    recorder.start("t0001", **config())
    recorder.measure("t0001", 3, val_accuracy=0.5, **interval(100.0, 150.0))
    recorder.finish("t0001")
    write_run(folder / "short", recorder.events)
    text = listed(capsys, folder)
    assert "100 ± ?" in text
    assert "A question mark: no interval is known" in text


def test_the_page_links_to_reports_and_escapes_names(capsys, folder, tmp_path):
    page = folder / "index.html"
    assert listed(capsys, folder, "--html", page) == f"4 runs: {page}\n"
    text = page.read_text()
    assert '<a href="h200%20%3Cb%3E/report.html">h200 &lt;b&gt;</a>' in text
    assert text.count("/report.html") == 1  # the others have none
    assert 'http-equiv="refresh"' not in text
    elsewhere = tmp_path / "elsewhere.html"
    listed(capsys, folder, "--html", elsewhere)
    assert 'href="runs/h200%20%3Cb%3E/report.html"' in elsewhere.read_text()


def test_every_writes_again_and_reads_only_journals_that_have_grown(capsys, folder, monkeypatch):
    read, page = [], folder / "index.html"
    monkeypatch.setattr(
        "search.runs.listed_run.read_journal",
        lambda path, real=list_runs.__globals__["read_journal"]: read.append(path.parent.name) or real(path),
    )

    def sleep(seconds):
        assert seconds == 30
        assert '<meta http-equiv="refresh" content="30.0">' in page.read_text()
        if len(read) > 4:
            raise KeyboardInterrupt
        with open(folder / "other" / "journal.jsonl", "a") as journal:
            journal.write(json.dumps({"event": "end", "time": 1_795_300_000.0, "reason": "enough"}) + "\n")

    assert main([str(folder), "--html", str(page), "--every", "30"], sleep) == 130
    assert read == ["cifar", "damaged", "h200 <b>", "other", "other"]
    assert "2 runs" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{}/nowhere"], "no such folder"),
        (["{}/cifar"], "cifar: is a run itself; give the folder that it lies in"),
        (["{}", "--where", "stat=running"], 'did you mean "state"?'),
        (["{}", "--every", "5"], "expected --html FILE"),
        (["{}", "--html", "{}/index.html", "--every", "inf"], "--every inf: expected 1 to 86,400 seconds"),
        (["{}", "--html", "{}/index.html", "--every", "nan"], "--every nan: expected 1 to 86,400 seconds"),
        (["{}", "--html", "{}/no/index.html"], "there is no folder"),
    ],
)
def test_bad_input_is_one_line(capsys, folder, arguments, message):
    before = sorted(os.listdir(folder))
    assert main([each.format(folder) for each in arguments]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert len(said.splitlines()) == 1
    assert sorted(os.listdir(folder)) == before
