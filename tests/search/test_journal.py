import json
import math

import pytest

from search.record.journal import Journal, read_journal


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.jsonl"


RUN = {"name": "a", "objectives": [{"metric": "val_accuracy", "goal": "maximize"}], "data": {"name": "generated"}}
FIELDS = {
    "run": RUN,
    "start": {"trial_id": "t0001", "config": {}},
    "measurement": {"trial_id": "t0001", "epoch": 1, "metrics": {}},
}


def write(path, *names):
    with Journal(path) as journal:
        for name in names:
            journal.append(name, **FIELDS.get(name, {}))


def names(path):
    return [event["event"] for event in read_journal(path)]


def test_what_is_appended_is_read_back_in_order(path):
    with Journal(path) as journal:
        journal.append("run", **RUN, budget={"hours": 0.5, "epochs": 1})
        journal.append("start", trial_id="t0001", config={"batch_size": 64, "loader": "memory"})
    first, second = read_journal(path)
    assert (first["name"], first["budget"]) == ("a", {"hours": 0.5, "epochs": 1})
    assert second["config"] == {"batch_size": 64, "loader": "memory"}
    assert first["time"] <= second["time"]


def test_an_event_is_on_the_disk_before_a_listener_hears_of_it(path):
    seen = []
    with Journal(path, [lambda event: seen.append((event["event"], names(path)[-1]))]) as journal:
        journal.append("run", **RUN)
        journal.append("start", **FIELDS["start"])
    assert seen == [("run", "run"), ("start", "start")]


def test_every_listener_hears_every_event(path):
    first, second = [], []
    with Journal(path, [first.append, second.append]) as journal:
        journal.append("run")
        journal.append("end", reason="enough")
    assert first == second
    assert [event["event"] for event in first] == ["run", "end"]


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
    assert read_journal(path)[0]["noted"] == {"val_accuracy": None, "all": [None, 1.5]}


@pytest.mark.parametrize("content", ["", "not json\n", '{"event":"start"}\n', "[1, 2]\n", '"run"\n', "\x00\x00"])
def test_what_does_not_begin_with_a_run_is_not_a_journal(path, content):
    path.write_text(content)
    with pytest.raises(ValueError, match=r"journal\.jsonl: not the journal of a run"):
        read_journal(path)


def test_a_missing_journal_is_an_error(path):
    with pytest.raises(FileNotFoundError):
        read_journal(path)
