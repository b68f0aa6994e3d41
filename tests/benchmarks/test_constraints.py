"""Benchmark of searches under a constraint, on a toy problem."""

import json
import sys
from pathlib import Path

import constraints
import pytest
from constraints import Bounded
from recorded import load

PROBLEMS = """\
NAMES = ["hpolib:toy"]

class Toy:
    name, max_epoch = "hpolib:toy", 1
    space = {"n_units_1": ("cat", [16, 32, 64, 128]), "n_units_2": ("cat", [16, 32, 64, 128])}

    def curve(self, config):
        accuracy = 1 - 8 / config["n_units_1"] - 8 / config["n_units_2"]
        return [(1, accuracy, 1e4 / (config["n_units_1"] + config["n_units_2"]), 1.0)]

load = lambda name: Toy()
"""


@pytest.fixture
def problems(tmp_path, monkeypatch):
    (tmp_path / "mobench.py").write_text(PROBLEMS)
    monkeypatch.setitem(constraints.RUNS, "hpolib", 12)
    return tmp_path


@pytest.mark.parametrize(("kind", "operator"), [("weights", "<="), ("accuracy", ">=")])
def test_three_in_ten_satisfy_the_constraint_and_they_alone_count(problems, kind, operator):
    bounded = Bounded(load(Path(problems), "hpolib:toy"), kind)
    everything = bounded._everything
    satisfying = [each for each in everything if bounded.limit.violation(*each) <= 0]
    assert bounded.limit.constraint.operator == operator
    assert 0.25 <= len(satisfying) / len(everything) <= 0.4
    assert bounded.score(everything) == bounded.score(satisfying) == 1
    assert bounded.score([each for each in everything if each not in satisfying]) == 0
    assert bounded.share(everything) == len(satisfying) / len(everything)
    assert bounded.share([]) == 0


def test_each_method_has_its_row(problems, monkeypatch, capsys):
    command = ["constraints.py", "--problems", f"{problems}", "--seeds", "2", "--families", "hpolib"]
    monkeypatch.setattr(sys, "argv", command)
    constraints.main()
    *table, last = capsys.readouterr().out.splitlines()
    found = json.loads(last)["constraints"]
    assert len(table) == 2 + 2 * len(constraints.METHODS)
    for kind in ("weights", "accuracy"):
        aware, unaware = (found[f"hpolib:toy {kind} {name}"]["share"] for name in ("ours", "ours_unaware"))
        assert sum(aware) > sum(unaware)
