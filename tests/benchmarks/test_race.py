from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import race
from baselines import METHODS, method_version
from noise import Noise
from our_methods import OurAdvisor, OurAdvisorWithout
from problems import CANNOT_RUN, sample
from race import Course, Courses, Race, trials_of

from search.advisor.proposal import Proposal
from search.advisor.trial_model import TrialModel
from tests.kernels import only_on_x86, printed_with_both_kernels

EPOCHS = 4


class Ladder:
    """Problem whose accuracy grows with the epoch and whose throughput falls with the size; size 3 cannot run."""

    name = "toy:ladder"
    max_epoch = EPOCHS

    space: Mapping[str, tuple[Any, ...]] = {"size": ("cat", [1, 2, 3]), "rate": ("float", 0.01, 1.0, True)}

    def curve(self, config):
        if config["size"] == 3:
            return CANNOT_RUN
        return [(epoch, config["rate"] * epoch / EPOCHS, 1 / config["size"], float(epoch)) for epoch in range(1, 5)]

    def hv(self, points):
        return max(accuracy * rate for accuracy, rate in points)


@dataclass
class Scripted:
    """Proposes the given configurations; stops the trials in `stops` after their first epoch."""

    configs: list[dict[str, Any]]
    stops: tuple[int, ...] = ()
    ends: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    def propose(self):
        number = sum(event.startswith("start") for event in self.log)
        if number == len(self.configs):
            return None
        self.log.append(f"start {number}")
        return Proposal(f"{number}", self.configs[number])

    def observe(self, trial_id, epoch, point, half=0.0):
        return int(trial_id) not in self.stops

    def finish(self, trial_id, end, point):
        self.ends.append(end)
        self.log.append(f"end {trial_id}")


GOOD: dict[str, Any] = {"size": 1, "rate": 1.0}
REFUSED: dict[str, Any] = {"size": 3, "rate": 1.0}


def test_a_trial_costs_the_share_of_a_full_run_that_it_was_trained():
    method = Scripted([GOOD, GOOD, GOOD], stops=(1,))
    assert list(trials_of(Ladder(), method, 10)) == [
        (Fraction(1), (1.0, 1.0)),
        (Fraction(5, 4), None),
        (Fraction(9, 4), (1.0, 1.0)),
    ]
    assert method.ends == ["complete", "stopped", "complete"]


def test_what_cannot_run_costs_a_run_and_gives_no_point():
    method = Scripted([REFUSED, GOOD])
    assert [point for _, point in trials_of(Ladder(), method, 2)] == [None, (1.0, 1.0)]
    assert method.ends == ["infeasible", "complete"]


def test_a_trial_that_the_budget_cuts_short_does_not_count():
    method = Scripted([GOOD, GOOD, GOOD], stops=(0,))
    spent = list(trials_of(Ladder(), method, 2))
    assert spent[-1] == (Fraction(2), None)
    assert [point for _, point in spent] == [None, (1.0, 1.0), None]


def test_of_several_at_once_the_next_starts_when_one_ends():
    method = Scripted([GOOD, GOOD, REFUSED, GOOD], stops=(1,))
    assert list(trials_of(Ladder(), method, 10, at_once=2)) == [
        (Fraction(1, 2), None),  # after an epoch of each
        (Fraction(5, 4), (1.0, 1.0)),
        (Fraction(9, 4), None),
        (Fraction(13, 4), (1.0, 1.0)),
    ]
    assert method.log == ["start 0", "start 1", "end 1", "start 2", "end 0", "start 3", "end 2", "end 3"]


def test_trials_that_run_when_the_budget_ends_have_no_point():
    method = Scripted([GOOD] * 9)
    spent = list(trials_of(Ladder(), method, 3, at_once=2))
    assert spent == [(Fraction(2) - Fraction(1, 4), (1.0, 1.0)), (Fraction(2), (1.0, 1.0)), (3, None), (3, None)]


def test_a_course_is_a_staircase():
    course = Course(((1.0, 0.25), (3.0, 0.5)), trials=4, complete=2, seconds=0.0)
    assert course.over(np.array([0.0, 0.9, 1.0, 2.9, 3.0, 9.0])).tolist() == [0.0, 0.0, 0.25, 0.25, 0.5, 0.5]
    assert course.final == 0.5


def test_records_are_found_again(tmp_path):
    race = Race("toy:ladder", "full", 2, "random", "1", seed=7)
    course = Course(((1.0, 0.25),), trials=2, complete=1, seconds=0.1)
    Courses(tmp_path / "cache.jsonl").add(race, course)
    again = Courses(tmp_path / "cache.jsonl")
    assert race in again
    assert again[race] == course
    assert Race("toy:ladder", "full", 2, "random", "2", seed=7) not in again  # another version is another method


@pytest.mark.parametrize("setting", ["full", "short"])
@pytest.mark.parametrize("name", METHODS)
def test_each_method_spends_its_budget_and_repeats_itself(name, setting):
    if method_version(name) is None:
        pytest.skip("its package is not installed")
    first, second = (list(trials_of(Ladder(), METHODS[name](Ladder(), 6, 3, setting), 6)) for _ in range(2))
    assert first == second
    assert first[-1][0] == 6
    assert any(point is not None for _, point in first)


@pytest.mark.parametrize(
    ("setting", "rule"), [("full", "forecast"), ("short", "forecast"), ("noisy", "forecast"), ("four", "none")]
)
def test_the_advisor_may_stop_trials_where_the_budget_is_in_epochs(setting, rule):
    assert OurAdvisor(Ladder(), 6, 3, setting).advisor._space.stopping_rule == rule


def test_noise_changes_what_a_method_hears_and_not_its_points():
    heard = []

    class Listening(Scripted):
        def observe(self, trial_id, epoch, point, half=0.0):
            heard.append((trial_id, point, half))
            return True

    spent = list(trials_of(Ladder(), Listening([GOOD, GOOD]), 2, Noise(0)))
    assert [point for _, point in spent] == [(1.0, 1.0)] * 2
    rates = [{point[1] for trial, point, _ in heard if trial == each} for each in "01"]
    assert [len(found) for found in rates] == [1, 1]  # wrong by the same factor in all epochs of a trial
    assert rates[0] != rates[1]
    halves = {half / point[1] for _, point, half in heard}
    assert len({round(half, 9) for half in halves}) == 2
    assert all(0.03 <= half <= 0.5 for half in halves)


def test_a_drawn_configuration_is_of_the_space():
    generator = np.random.default_rng(0)
    drawn = [sample(Ladder(), generator) for _ in range(200)]
    assert {config["size"] for config in drawn} == {1, 2, 3}
    assert all(0.01 <= config["rate"] <= 1.0 for config in drawn)
    assert abs(np.mean([config["rate"] < 0.1 for config in drawn]) - 0.5) < 0.15  # half of a logarithmic range; 4 sigma


def test_without_errors_no_measurement_has_one_not_even_the_last(monkeypatch):
    known = []

    def told(model, metrics):
        known.append(any(error > 0 for *_, error in model._losses_and_errors(metrics)))

    monkeypatch.setattr(TrialModel, "_learn", lambda self, row, part, metrics, constraints=(): told(self, metrics))
    for method in (OurAdvisor, partial(OurAdvisorWithout, "errors")):
        known.clear()
        ended = list(trials_of(Ladder(), method(Ladder(), 3, 3, "noisy"), 3, Noise(0)))
        assert any(point is not None for _, point in ended)
        assert set(known) == {method is OurAdvisor}


SEARCH = """
from our_methods import OurAdvisor
from race import trials_of
from vgg19_table import Vgg19Table
print(list(trials_of(Vgg19Table(), OurAdvisor(Vgg19Table(), 20, 5, "short"), 20)))
"""


@pytest.mark.slow
@only_on_x86
def test_ties_are_decided_alike_on_an_older_processor():
    """Two settings that are equally far from those tried promise the same, up to the last digit of a sum."""
    trials, same = printed_with_both_kernels(SEARCH, Path(race.__file__).parent)
    assert trials == same
