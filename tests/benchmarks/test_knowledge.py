"""Benchmarks of what is known before a search, and of three objectives, on toy problems."""

import json
import sys
from pathlib import Path

import knowledge
import pytest
import three_objectives
from recorded import load

PROBLEMS = """\
NAMES = ["hpolib:one", "hpolib:two"]

class Toy:
    max_epoch, space = 1, {"n_units_1": ("cat", [16, 32, 64, 128]), "n_units_2": ("cat", [16, 32, 64, 128])}

    def __init__(self, name):
        self.name = name

    def curve(self, config):
        accuracy = 1 - 8 / config["n_units_1"] - 8 / config["n_units_2"]
        return [(1, accuracy, 1e4 / (config["n_units_1"] + config["n_units_2"]), 1.0)]

    def hv(self, points):
        return max((accuracy * rate for accuracy, rate in points), default=0.0)

load = Toy
"""


@pytest.fixture
def problems(tmp_path, monkeypatch):
    """Folder of two problems of one family, with short budgets."""
    (tmp_path / "mobench.py").write_text(PROBLEMS)
    monkeypatch.setitem(knowledge.TRIALS, "hpolib", 8)
    monkeypatch.setitem(three_objectives.RUNS, "hpolib", 12)
    return str(tmp_path)


@pytest.mark.slow
def test_each_kind_of_knowledge_has_its_row(problems, monkeypatch, capsys):
    command = ["knowledge.py", "--problems", problems, "--families", "hpolib", "--seeds", "2"]
    monkeypatch.setattr(sys, "argv", command)
    knowledge.main()
    *table, last = capsys.readouterr().out.splitlines()
    found = json.loads(last)["knowledge"]
    assert list(found) == ["likely", "likely, wrong", "earlier run", "earlier run, shuffled"]
    assert {len(differences) for differences in found.values()} == {4}  # problems x seeds
    assert len(table) == 2 + 2 * 5 + 4


def test_each_configuration_is_trained_to_its_end(problems, monkeypatch):
    toy = load(Path(problems), "hpolib:one")
    monkeypatch.setattr(toy, "max_epoch", 20, raising=False)
    assert knowledge._advisor(toy, 8, seed=0).advisor._space.stopping_rule == "none"


def test_the_third_objective_is_the_number_of_weights(problems, monkeypatch, capsys):
    toy = three_objectives.Recorded(load(Path(problems), "hpolib:one"))
    assert toy.measured({"n_units_1": 16, "n_units_2": 32})[2] == 10 * 16 + 17 * 32 + 33
    command = ["three_objectives.py", "--problems", problems, "--seeds", "1"]
    monkeypatch.setattr(sys, "argv", [*command, "--methods", "ours", "random"])
    three_objectives.main()
    scores = json.loads(capsys.readouterr().out.splitlines()[-1])["three_objectives"]
    assert 0 <= scores["hpolib:one random"][0] <= scores["hpolib:one ours"][0] <= 1
    assert scores["hpolib:one ours"][0] > 0
