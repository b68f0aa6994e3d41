"""One search on one recorded problem: hypervolume of its finished trials over cost, cached on disk."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from pathlib import Path

import numpy as np
import optuna
from baselines import METHODS, method_version
from method import Method, Setting
from noise import Noise
from numpy.typing import NDArray
from problems import CANNOT_RUN, Point, Problem, Row
from recorded import load
from records import Records

from search.advisor.proposal import Proposal

AT_ONCE: dict[Setting, int] = {"four": 4}


@dataclass(frozen=True)
class Race:
    """Key of a result: the problem, the budget, the method and the seed."""

    problem: str
    setting: Setting
    runs: int
    method: str
    version: str
    seed: int


@dataclass(frozen=True)
class Course:
    """Result of a search. `steps`: (cost in full runs, hypervolume) after each trial that raised the hypervolume."""

    steps: tuple[tuple[float, float], ...]
    trials: int
    complete: int
    seconds: float

    @property
    def final(self) -> float:
        """Hypervolume at the end; 1 is that of the best known front."""
        return self.steps[-1][1] if self.steps else 0.0

    def over(self, costs: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the hypervolume at each of these costs in full runs."""
        return over(self.steps, costs)


def over(steps: Sequence[tuple[float, float]], costs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the last value reached at each cost; 0 before the first of `steps`."""
    reached = np.searchsorted([cost for cost, _ in steps], costs + 1e-9)
    return np.array([0.0, *(value for _, value in steps)])[reached]


def run(folder: Path, race: Race) -> Course:
    """Run the method until its budget is spent."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    problem = load(folder, race.problem)
    method = METHODS[race.method](problem, race.runs, race.seed, race.setting)
    started = time.perf_counter()
    found: list[Point] = []
    steps: list[tuple[float, float]] = []
    trials = 0
    noise = Noise(race.seed) if race.setting == "noisy" else None
    at_once = AT_ONCE.get(race.setting, 1)
    for cost, point in trials_of(problem, method, race.runs, noise, at_once):
        trials += 1
        if point is not None:
            found.append(point)
            value = float(problem.hv(found))
            if not steps or value > steps[-1][1]:
                steps.append((float(cost), value))
    return Course(tuple(steps), trials, len(found), round(time.perf_counter() - started, 2))


@dataclass(order=True)
class _Running:
    """Trial in progress; the one whose next epoch ends first is the smallest."""

    next_end: Fraction  # of an epoch, in durations of a full run
    number: int
    proposal: Proposal = field(compare=False)
    curve: Sequence[Row] = field(compare=False)
    epochs: int = field(default=0, compare=False)


def trials_of(
    problem: Problem, method: Method, runs: int, noise: Noise | None = None, at_once: int = 1
) -> Iterator[tuple[Fraction, Point | None]]:
    """Yield the cost after each trial, and the trial's point if it was trained to the end.

    The cost is in full runs: a trial that is stopped after 5 of 50 epochs costs a tenth. An infeasible trial costs a
    full run. A trial that is running when the budget ends has no point. `noise` changes what the method hears, not the
    points; it needs one trial at a time. Of `at_once` trials each takes as long as it costs.
    """
    assert at_once == 1 or noise is None
    spent = now = Fraction(0)
    running: list[_Running] = []
    numbers = itertools.count()
    while spent < runs:
        while len(running) < at_once and (proposal := method.propose()) is not None:
            curve = problem.curve(proposal.config)
            heapq.heappush(running, _Running(now + Fraction(1, len(curve)), next(numbers), proposal, curve))
            if noise and curve != CANNOT_RUN:
                noise.next_trial()
        if not running:
            return
        trial = heapq.heappop(running)
        trial_id, now = trial.proposal.trial_id, trial.next_end
        spent = min(spent + Fraction(1, len(trial.curve)), Fraction(runs))
        if trial.curve == CANNOT_RUN:
            method.finish(trial_id, "infeasible", (0.0, 0.0))
            yield spent, None
            continue
        epoch, accuracy, throughput, _ = trial.curve[trial.epochs]
        trial.epochs += 1
        told, half = noise.told((accuracy, throughput)) if noise else ((accuracy, throughput), 0.0)
        continues = method.observe(trial_id, epoch, told, half)
        finished = trial.epochs == len(trial.curve)
        if finished or spent >= runs or not continues:
            method.finish(trial_id, "complete" if finished else "stopped", told)
            yield spent, (accuracy, throughput) if finished else None
        else:
            trial.next_end += Fraction(1, len(trial.curve))
            heapq.heappush(running, trial)
    for _ in running:
        yield spent, None


class Courses:
    """Results by race, kept in a file unless there is no path."""

    def __init__(self, path: Path | None) -> None:
        self._records = Records(path)

    def __contains__(self, race: Race) -> bool:
        return self._records.get(asdict(race)) is not None

    def __getitem__(self, race: Race) -> Course:
        course = self._records.get(asdict(race))
        return Course(**{**course, "steps": tuple((cost, value) for cost, value in course["steps"])})

    def add(self, race: Race, course: Course) -> None:
        """Store a result."""
        self._records.add(asdict(race), asdict(course))


def race_of(problem: str, setting: Setting, runs: int, method: str, seed: int) -> Race | None:
    """Return the key with the version of the method, or None if the method is not installed."""
    known = method_version(method)
    return None if known is None else Race(problem, setting, runs, method, known, seed)
