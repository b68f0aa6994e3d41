"""Searches from Python: what comes back, what is raised, and an interruption that is passed on."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from search import python
from search.python import run_search
from search.space.parsing import load_space

SPACE = {
    "trainable": "tests.faulty_replay",
    "objectives": [
        {"metric": "val_accuracy", "goal": "maximize"},
        {"metric": "images_per_second", "goal": "maximize"},
    ],
    "parameters": {"batch_size": {"values": [32, 64]}},
    "searcher": {"name": "grid"},
    "budget": {"epochs": 2},
}
# A command in place of `python -m search.run`, which prints its words and ends as it is told.
STAND_IN = """\
import json, signal, sys, time
print("words", json.dumps(sys.argv[1:]))
print(open(sys.argv[1]).read())
if INTERRUPTED:
    signal.signal(signal.SIGINT, lambda *received: (print("to go on: x"), sys.exit(130)))
    print("ready", flush=True)
    time.sleep(20)
print("the last line")
sys.exit(CODE)
"""


def stand_in(monkeypatch: pytest.MonkeyPatch, code: int = 0, interrupted: bool = False) -> None:
    script = STAND_IN.replace("CODE", f"{code}").replace("INTERRUPTED", f"{interrupted}")
    printed = python._printed
    monkeypatch.setattr(
        python, "_printed", lambda command, place: printed([sys.executable, "-c", script, *command[3:]], place)
    )


def test_a_wrong_space_is_a_value_error_with_its_place_and_nothing_is_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"^budget\.trails"):
        run_search({**SPACE, "budget": {"trails": 8}})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"options": ["--results", "x"]}, ValueError, "options: --results: is the argument `results`"),
        ({"options": ["--name=x"]}, ValueError, "options: --name=x: is the argument `name`"),
        ({"options": ["--dry-run"]}, ValueError, "is for the command line: python -m search.run SPACE --dry-run"),
        ({"options": "--go-on"}, TypeError, r'options: found "--go-on"; expected a list of words'),
        ({"space": None}, TypeError, "space: found None; expected a path or a mapping"),
    ],
)
def test_an_argument_that_would_lead_elsewhere_is_refused_before_anything_runs(
    arguments: dict[str, Any], kind: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python, "_printed", lambda *command: pytest.fail("it ran"))
    with pytest.raises(kind, match=message):
        run_search(**{"space": SPACE, **arguments})


def test_settings_and_options_become_words_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(monkeypatch, code=5)
    monkeypatch.chdir(tmp_path)
    Path("rows.py").touch()
    with pytest.raises(RuntimeError, match="the last line"):
        run_search(
            {**SPACE, "trainable": "rows.py"}, name="a", settings={"budget.trials": 8}, options=["--no-dashboard"]
        )
    words, space = capsys.readouterr().out.splitlines()[:2]
    given: list[Any] = json.loads(words.removeprefix("words "))
    assert given[1:] == ["--name", "a", "--results", "results", "--no-dashboard", "--set", "budget.trials=8"]
    assert json.loads(space)["trainable"] == f"{tmp_path / 'rows.py'}"


def test_characters_beyond_16_bits_are_read_as_they_were_given(tmp_path: Path) -> None:
    space = {**SPACE, "data": {"root": "/pictures 😀"}}
    assert load_space(python._written(space, tmp_path)).data.root == "/pictures 😀"


def test_an_interruption_is_passed_on_and_the_command_has_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, interrupted=True)
    real = print

    def printing(text: str, **how: Any) -> None:
        real(text, **how)
        if text == "ready\n":
            raise KeyboardInterrupt

    monkeypatch.setattr("builtins.print", printing)
    with pytest.raises(KeyboardInterrupt, match="to go on: x"):
        run_search(SPACE)


@pytest.mark.slow
def test_a_search_returns_its_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_search(SPACE, name="grid", results=tmp_path, options=["--no-dashboard"])
    assert run.trials.state.tolist() == ["complete", "complete"]
    assert len(run.front) >= 1
    assert f"{tmp_path / 'grid'}" in capsys.readouterr().out
