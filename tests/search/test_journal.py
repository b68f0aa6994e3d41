import json
import math
from typing import Any

import pytest

from search.record.events import Event
from search.record.journal import Journal, read_journal


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.jsonl"


RUN: dict[str, Any] = {
    "name": "a",
    "objectives": [{"metric": "val_accuracy", "goal": "maximize"}],
    "data": {"name": "generated"},
}
FIELDS: dict[str, dict[str, Any]] = {
    "run": RUN,
    "start": {"trial_id": "t0001", "config": {}},
    "measurement": {"trial_id": "t0001", "epoch": 1, "metrics": {}},
}


def read(path) -> list[Any]:
    return list(read_journal(path))


def write(path, *names):
    with Journal(path) as journal:
        for name in names:
            journal.append(name, **FIELDS.get(name, {}))


def names(path):
    return [event.event for event in read_journal(path)]


def test_what_is_appended_is_read_back_in_order(path):
    with Journal(path) as journal:
        journal.append("run", **RUN, budget={"hours": 0.5, "epochs": 1})
        journal.append("start", trial_id="t0001", config={"batch_size": 64, "loader": "memory"})
    first, second = read(path)
    assert (first.name, first.budget.hours, first.budget.epochs) == ("a", 0.5, 1)
    assert second.config == {"batch_size": 64, "loader": "memory"}
    assert first.time <= second.time


def test_an_event_is_on_the_disk_before_a_listener_hears_of_it(path):
    seen = []
    with Journal(path, [lambda event: seen.append((event.event, names(path)[-1]))]) as journal:
        journal.append("run", **RUN)
        journal.append("start", **FIELDS["start"])
    assert seen == [("run", "run"), ("start", "start")]


def test_every_listener_hears_every_event(path):
    first: list[Event] = []
    second: list[Event] = []
    with Journal(path, [first.append, second.append]) as journal:
        journal.append("run", **RUN)
        journal.append("end", reason="enough")
    assert first == second
    assert [event.event for event in first] == ["run", "end"]


@pytest.mark.parametrize("bytes_lost", [1, 2, 10, 25])
def test_a_torn_last_line_is_left_out_and_does_not_swallow_the_next(path, bytes_lost):
    write(path, "run", "start", "measurement")
    path.write_bytes(path.read_bytes()[:-bytes_lost])
    before = names(path)
    assert before[:2] == ["run", "start"]
    write(path, "resume")
    assert names(path) == [*before, "resume"]


def test_a_line_torn_at_any_byte_costs_no_other_line(path):
    write(path, "run", "start")
    whole = path.read_bytes()
    for size in range(whole.index(b"\n") + 1, len(whole)):
        path.write_bytes(whole[:size])
        write(path, "resume")
        assert [name for name in names(path) if name != "start"] == ["run", "resume"]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_json_cannot_say_is_null_however_deep(path, value):
    with Journal(path) as journal:
        journal.append("run", **RUN, noted={"val_accuracy": value, "all": [value, 1.5]})
    for line in path.read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)
    assert json.loads(path.read_text())["noted"] == {"val_accuracy": None, "all": [None, 1.5]}


def test_what_was_not_measured_is_null_in_the_file_and_nan_for_whoever_hears_or_reads_it(path):
    heard: list[Any] = []
    with Journal(path, [heard.append]) as journal:
        journal.append("run", **RUN)
        journal.append("measurement", trial_id="t0001", epoch=1, metrics={"loss": math.inf, "rate": 3})
    assert json.loads(path.read_text().splitlines()[1])["metrics"] == {"loss": None, "rate": 3}
    for event in (heard[1], read(path)[1]):
        assert math.isnan(event.metrics["loss"])
        assert event.metrics["rate"] == 3.0


def test_an_event_that_could_not_be_read_again_is_not_written(path):
    with Journal(path) as journal:
        journal.append("run", **RUN)
        with pytest.raises(ValueError, match=r'metrics\.rate: found "fast"; expected a number'):
            journal.append("measurement", trial_id="t0001", epoch=1, metrics={"rate": "fast"})
    assert names(path) == ["run"]


@pytest.mark.parametrize(
    ("event", "fault"),
    [
        ({"event": "start", "trial_id": "../t1", "config": {}}, "trial_id: expected the name of a trial, as in t0001"),
        (
            {"event": "start", "trial_id": "t1", "config": {"a": [1]}},
            "config.a: expected a number, a word, true or",
        ),
        (
            {"event": "finish", "trial_id": "t1", "state": "done"},
            'state: found "done"; there are complete, stopped',
        ),
        (
            {"event": "measurement", "trial_id": "t1", "epoch": -1, "metrics": {}},
            "epoch: found -1; expected at least 0",
        ),
        (
            {"event": "measurement", "trial_id": "t1", "epoch": 1, "metrics": {"a": True}},
            "metrics.a: found true; expect",
        ),
        ({"event": "measurement", "trial_id": "t1", "epoch": 1}, "metrics: missing"),
        ({"event": "end", "time": 1e300}, "time: found 1e+300; expected less than"),
        ({"trial_id": "t1"}, "event: missing"),
        ([1, 2], "found a list; expected a mapping"),
    ],
)
def test_a_line_that_is_no_event_is_left_out_and_its_fault_named(path, caplog, event, fault):
    write(path, "run")
    line = json.dumps({"time": 1.0, **event} if isinstance(event, dict) else event)
    path.write_text(f"{path.read_text()}{line}\n")
    assert names(path) == ["run"]
    assert f"journal.jsonl:2: {fault}" in caplog.text


def test_unknown_events_and_unknown_fields_are_tolerated(path):
    write(path, "run")
    lines = [{"event": "pause", "time": 1.0, "why": [1]}, {"event": "end", "time": 2.0, "reason": "x", "mood": "good"}]
    path.write_text(path.read_text() + "".join(json.dumps(line) + "\n" for line in lines))
    assert names(path) == ["run", "pause", "end"]


@pytest.mark.parametrize("content", ["", "not json\n", '{"event":"start"}\n', "[1, 2]\n", '"run"\n', "\x00\x00"])
def test_what_does_not_begin_with_a_run_is_not_a_journal(path, content):
    path.write_text(content)
    with pytest.raises(ValueError, match=r"journal\.jsonl: not the journal of a run"):
        read_journal(path)


def test_a_missing_journal_is_an_error(path):
    with pytest.raises(FileNotFoundError):
        read_journal(path)


def test_metrics_of_earlier_versions_are_read_under_their_present_names(path):
    objectives = [{"metric": "val_accuracy", "goal": "maximize"}]
    lines: list[dict[str, Any]] = [
        {
            "event": "run",
            "name": "a",
            "objectives": objectives,
            "data": {"name": "b"},
            "metrics": {"disturbed": "0 or 1"},
        },
        {"event": "known", "measurements": [{"config": {}, "metrics": {"disturbed": 1.0}}]},
        {"event": "measurement", "trial_id": "t0001", "epoch": 1, "metrics": {"disturbed_windows": 2.0, "cost": 3.0}},
    ]
    path.write_text("".join(json.dumps({**line, "time": 0.0}) + "\n" for line in lines))
    run, known, measurement = read(path)
    assert run.metrics == {"contended": "0 or 1"}
    assert known.measurements[0].metrics == {"contended": 1.0}
    assert measurement.metrics == {"contended_windows": 2.0, "cost": 3.0}
