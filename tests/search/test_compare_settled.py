"""Shared configurations of several runs, measured again in turns."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from search.compare import __main__ as command
from search.compare.__main__ import main
from search.compare.comparison import Reading, Shared, shared, sides
from search.compare.settled import Settled, settle, trainings
from search.compare.tables import comparison_in_turns
from search.front.differences import Estimate
from search.results import load
from search.space.machine import describe_machine
from search.train.turn_group import TurnError
from tests.search.runs import INFO, Recorder, config, write_run
from tests.trainables.own_files import written

HERE = describe_machine()
ROW = Shared({"batch_size": 64}, {letter: Reading(100.0, None, 1, contended=False) for letter in "AB"})


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Groups:
    """Processes whose rates are known by the training file; each round takes a second."""

    def __init__(self, clock: Clock, rates: dict[str, float]) -> None:
        self.clock, self.rates, self.started, self.open = clock, rates, list[list[str]](), 0

    def __call__(self, arguments: list[str], changes: list[dict[str, Any]]) -> "Groups.One":
        assert changes == [{}]
        self.started.append(arguments)
        if self.rates[arguments[0]] == 0:
            raise TurnError("file.py:3: no such name")
        self.open += 1
        return Groups.One(self, self.rates[arguments[0]])

    class One:
        def __init__(self, groups: "Groups", rate: float) -> None:
            self.groups, self.rate, self.turns = groups, rate, 0

        def round(self) -> list[float]:
            self.groups.clock.now += 1
            self.turns += 1
            return [self.rate * (1 + 0.001 * (self.turns % 3))]

        def close(self) -> None:
            self.groups.open -= 1


def settled(rates: dict[str, float], rows: list[Shared], seconds: float = 100.0) -> tuple[list[Settled], Groups]:
    clock = Clock()
    groups = Groups(clock, rates)
    found = settle(rows, list(rates), [[name] for name in rates], seconds, groups, clock)  # type: ignore[arg-type]
    assert groups.open == 0
    return found, groups


def test_a_faster_training_is_found_and_an_equal_one_is_a_tie() -> None:
    ((faster,), groups) = settled({"A": 100.0, "B": 120.0}, [ROW])
    assert faster.ratios["B"].mean == pytest.approx(math.log(1.2), abs=0.002)
    assert groups.started == [["A", "batch_size=64"], ["B", "batch_size=64"]]
    ((equal,), _) = settled({"A": 100.0, "B": 100.0}, [ROW])
    assert equal.ratios["B"].is_tie


def test_configurations_share_the_time_and_those_without_are_left_out() -> None:
    found, groups = settled({"A": 100.0, "B": 100.0}, [ROW] * 5, seconds=30.0)
    assert 1 <= len(found) < 5
    assert groups.clock.now < 60


def test_what_cannot_run_is_said_and_the_next_is_tried() -> None:
    found, _ = settled({"A": 100.0, "B": 0}, [ROW, ROW])
    assert [(each.ratios, each.reason) for each in found] == [({}, "file.py:3: no such name")] * 2


def run_of(folder: Path, nap: float | None = None, **changed: Any) -> Path:
    """A run on this machine; with `nap`, of a file that sleeps so long in each step, of which the run has a copy."""
    machine = asdict(HERE)
    if nap is not None:
        info: dict[str, Any] = {"trainable": "../../gone/rows.py", "source": f"{nap}", "space": None, "parameters": {}}
        info["data"] = {"name": "auto", "description": "rows"}
        changed = {**info, "data_settings": {}, "fixed": {}, **changed}
    recorder = Recorder(**{"machine": machine, **changed})
    recorder.complete("t0001", [0.5], 100.0, {"batch_size": 8} if nap is not None else config(64))
    write_run(folder, recorder.events)
    if nap is not None:
        (folder / "source").mkdir()
        network = "import time\n\n\nclass Nap(nn.Sequential):\n    def forward(self, x):\n"
        network += f"        time.sleep({nap})\n        return super().forward(x)\n\n\ndef network(hidden):\n"
        written(
            folder / "source",
            "rows.py",
            ("def network(hidden):\n    return nn.Sequential(", f"{network}    return Nap("),
        )
    return folder


def test_runs_of_one_training_on_one_machine_have_nothing_to_settle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [run_of(tmp_path / name) for name in "ab"]
    assert main([*map(str, folders), "--settle"]) == 2
    assert "A and B train the same code on the same data" in capsys.readouterr().err


def test_a_run_of_another_machine_cannot_be_settled_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = run_of(tmp_path / "b", machine={**INFO["machine"], "cpu_name": "Abacus"})
    assert main([str(run_of(tmp_path / "a")), str(other), "--settle"]) == 2
    assert (
        "--settle: B (throughput-2026-11-20-1) is from another machine: cpu_name Abacus there"
        in capsys.readouterr().err
    )


def test_a_training_has_the_defaults_that_its_run_recorded(tmp_path: Path) -> None:
    folders = [run_of(tmp_path / f"{width}", defaults={"width": width, "depth": 19}) for width in (0.5, 1.0)]
    first, second = trainings(sides([load(folder) for folder in folders]), HERE)
    assert first == [*second, "width=0.5"]


def test_an_interrupt_ends_it_with_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "settle", interrupted)
    folders = [run_of(tmp_path / name, nap) for name, nap in (("a", 0.1), ("b", 0.0))]
    assert command.main([*map(str, folders), "--settle"]) == 130
    assert capsys.readouterr().err == "search.compare: interrupted\n"


def test_a_ratio_that_says_nothing_has_a_question_mark_that_is_explained(tmp_path: Path) -> None:
    named = sides([load(run_of(tmp_path / name)) for name in "ab"])
    text = "\n\n".join(comparison_in_turns(named, 1, [Settled({"batch_size": 64}, 6, {"B": Estimate(0.0, 2.0)})]))
    assert "1.00 ± ?, not decided" in text
    assert "A question mark: no interval is known" in " ".join(text.split())


def test_minutes_below_zero_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(run_of(tmp_path / "a")), str(run_of(tmp_path / "b")), "--settle", "--minutes", "-1"]) == 2
    assert "expected more than 0" in capsys.readouterr().err


@pytest.mark.slow
def test_the_change_of_a_training_file_is_told_as_a_ratio(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [run_of(tmp_path / name, nap) for name, nap in (("a", 0.2), ("b", 0.0))]
    named = sides([load(folder) for folder in folders])
    assert [words[1] for words in trainings(named, HERE)] == [str(folder / "source/rows.py") for folder in folders]
    assert shared(named, "images_per_second")
    assert main([*map(str, folders), "--settle", "--minutes", "0.4"]) == 0
    out = capsys.readouterr().out
    print(out)
    assert "1 of 1 order decided" in out
    assert max(map(len, out.splitlines())) <= 80
