"""Optuna's samplers as methods of the race."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Mapping
from typing import Literal, get_args

import optuna
from method import End, Method, Setting
from problems import Point, Problem

from search.advisor.proposal import Proposal

Refused = Literal["zeros", "failure", "constraint"]


class OptunaStudy:
    """Optuna study with two directions, told final values only."""

    def __init__(self, problem: Problem, sampler: optuna.samplers.BaseSampler, refused: Refused = "zeros") -> None:
        """Create the study; `refused` says how it is told that a configuration cannot run."""
        self._refused = refused
        self._distributions = distributions(problem)
        self._study = optuna.create_study(directions=["maximize", "maximize"], sampler=sampler)
        self.trials: dict[str, optuna.Trial] = {}

    def propose(self) -> Proposal:
        """See `Method`."""
        trial = self._study.ask(self._distributions)
        self.trials[f"{trial.number}"] = trial
        return Proposal(f"{trial.number}", trial.params)

    def observe(self, trial_id: str, epoch: int, point: Point, half: float = 0.0) -> bool:
        """Continue always."""
        return True

    def finish(self, trial_id: str, end: End, point: Point) -> None:
        """See `Method`."""
        trial = self.trials[trial_id]
        if self._refused == "constraint":
            trial.set_constraint("runs", float(end == "infeasible"))  # zero is feasible
        if end == "infeasible" and self._refused == "failure":
            self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            self._study.tell(trial, point)


def optuna_tpe(problem: Problem, runs: int, seed: int, setting: Setting, refused: Refused = "zeros") -> OptunaStudy:
    """TPE with its defaults."""
    return OptunaStudy(problem, optuna.samplers.TPESampler(seed=seed), refused)


def optuna_tpe_multivariate(problem: Problem, runs: int, seed: int, setting: Setting) -> OptunaStudy:
    """TPE with one density over all parameters."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return OptunaStudy(problem, optuna.samplers.TPESampler(seed=seed, multivariate=True))


def optuna_nsga2(problem: Problem, runs: int, seed: int, setting: Setting) -> OptunaStudy:
    """NSGA-II with a population of 20; the default of 50 would be most of the budget."""
    return OptunaStudy(problem, optuna.samplers.NSGAIISampler(seed=seed, population_size=20))


class OptunaGP(OptunaStudy):
    """Optuna's Gaussian processes with logEHVI, which suit numeric spaces best.

    It is told the logarithm of the throughput, and of what cannot run the worst values so far, with which it finds more
    than with zeros or with a constraint.
    """

    def __init__(self, problem: Problem, runs: int, seed: int, setting: Setting) -> None:
        super().__init__(problem, optuna.samplers.GPSampler(seed=seed), "failure")
        self._told: list[Point] = []

    def finish(self, trial_id: str, end: End, point: Point) -> None:
        """See `Method`."""
        if end != "infeasible":
            self._told.append((point[0], math.log10(point[1])))
            super().finish(trial_id, end, self._told[-1])
        elif self._told:
            super().finish(trial_id, "complete", tuple(map(min, zip(*self._told, strict=True))))
        else:
            super().finish(trial_id, end, point)


def distributions(problem: Problem) -> dict[str, optuna.distributions.BaseDistribution]:
    """Return the problem's space as Optuna distributions."""
    kinds = {"int": optuna.distributions.IntDistribution, "float": optuna.distributions.FloatDistribution}
    return {
        name: optuna.distributions.CategoricalDistribution(details[0])
        if kind == "cat"
        else kinds[kind](details[0], details[1], log=details[2])
        for name, (kind, *details) in problem.space.items()
    }


# TPE by the way it is told that a configuration cannot run, see `out_of_memory.py`
TOLD: Mapping[str, Callable[[Problem, int, int, Setting], Method]] = {
    f"optuna_tpe_{refused}": functools.partial(optuna_tpe, refused=refused) for refused in get_args(Refused)
}
