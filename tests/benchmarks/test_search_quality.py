import json
import sys

import pytest
import search_quality

PROBLEMS = '''
"""Two settings; the larger number is better in both objectives, and takes one of three epochs to show it."""
NAMES = ["pollux:toy"]

class Toy:
    name, max_epoch, space = "pollux:toy", 3, {"size": ("cat", [1, 2, 4]), "rate": ("float", 0.1, 1.0, True)}

    def curve(self, config):
        return [(epoch, config["rate"] * epoch / 3, float(config["size"]), float(epoch)) for epoch in (1, 2, 3)]

    def hv(self, points):
        return max(accuracy * rate for accuracy, rate in points) / 4

load = lambda name: Toy()
'''


def run(monkeypatch, capsys, folder, *arguments):
    (folder / "mobench.py").write_text(PROBLEMS)
    command = ["search_quality.py", "--problems", str(folder), "--families", "pollux", "--seeds", "2", *arguments]
    monkeypatch.setattr(sys, "argv", [*command, "--settings", "full", "--methods", "ours", "random", "optuna_nsga2"])
    search_quality.main()
    return capsys.readouterr().out


def test_figures_are_in_the_last_line_and_a_cache_repeats_them(monkeypatch, capsys, tmp_path):
    cache = tmp_path / "cache.jsonl"
    first = run(monkeypatch, capsys, tmp_path, "--cache", str(cache))
    kept = cache.read_text()
    assert len(kept.splitlines()) == 3 * 2  # methods x seeds
    again = run(monkeypatch, capsys, tmp_path, "--cache", str(cache))
    assert cache.read_text() == kept
    assert again.splitlines()[-1] == first.splitlines()[-1]
    toy = json.loads(first.splitlines()[-1])["hypervolume"]["full"]["problems"]["pollux:toy"]
    assert 0 < toy["random"]["mean"] <= 1
    assert toy["lead"]["mean"] == pytest.approx(toy["ours"]["mean"] - toy[toy["lead"]["over"]]["mean"], abs=2e-4)


def test_the_lead_is_over_the_best_of_the_others_seed_by_seed():
    finals = {"ours": [0.5, 0.7], "ours_tpe": [0.9, 0.9], "optuna_tpe": [0.4, 0.4], "random": [0.1, 0.3]}
    assert search_quality._lead(finals) == {"lead": {"over": "optuna_tpe", "mean": 0.2, "standard_error": 0.1}}


def test_a_problem_without_its_family_in_a_setting_is_left_out(monkeypatch, capsys, tmp_path):
    (tmp_path / "mobench.py").write_text(PROBLEMS)
    words = ["--problems", str(tmp_path), "--settings", "short", "--families", "pollux"]
    monkeypatch.setattr(sys, "argv", ["search_quality.py", *words])
    assert search_quality._races(search_quality._options()) == []
