"""Search methods that are compared: the Advisor and its alternatives, one trial at a time.

Each method runs through its own public interface, in one process, sequentially, with its own defaults. The Advisor is
told that a configuration cannot run; the other methods get accuracy and throughput 0, as the authors of these problems
do it.
"""

from __future__ import annotations

import datetime
import functools
import hashlib
import itertools
import logging
import math
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")

import moocore
import numpy as np
import optuna
from numpy.typing import NDArray
from problems import METRICS, Point, Problem, sample, space_mapping

from search.advisor.advisor import Advisor
from search.advisor.proposal import Decision, Proposal
from search.space.space import parse_space

End = Literal["complete", "stopped", "infeasible"]
Refused = Literal["zeros", "failure", "constraint"]
Setting = Literal["full", "short", "noisy", "four"]  # see `search_quality.py`


class Method(Protocol):
    """Search in progress."""

    def propose(self) -> Proposal | None:
        """Return the next trial, or None at the end."""
        ...

    def observe(self, trial_id: str, epoch: int, point: Point, half: float = 0.0) -> bool:
        """Return whether the trial continues after this epoch.

        `half`: half of the throughput's 95% interval; 0: it is exact. Only the Advisor has a use for it.
        """
        ...

    def finish(self, trial_id: str, end: End, point: Point) -> None:
        """Tell how the trial ended, and its last point; (0, 0) if it cannot run."""
        ...


class OurAdvisor:
    """Advisor with the defaults of a space file; `sections` are further keys."""

    def __init__(self, problem: Problem, runs: int, seed: int, setting: Setting, **sections: Any) -> None:
        trials = {"total_epochs": runs * problem.max_epoch} if setting == "short" else {"trials": runs}
        budget = {"budget": {"epochs": problem.max_epoch, **trials}}
        self.advisor = Advisor(parse_space(space_mapping(problem, **(budget | sections))), seed=seed)

    def propose(self) -> Proposal | None:
        """See `Method`."""
        return self.advisor.propose()

    def observe(self, trial_id: str, epoch: int, point: Point, half: float = 0.0) -> bool:
        """See `Method`."""
        metrics = dict(zip(METRICS, point, strict=True))
        if half:
            metrics |= {"throughput_low": point[1] - half, "throughput_high": point[1] + half}
        return self.advisor.observe(trial_id, epoch, metrics) is Decision.CONTINUE

    def finish(self, trial_id: str, end: End, point: Point) -> None:
        """See `Method`."""
        self.advisor.finish(trial_id, end)


class OurAdvisorWithoutErrors(OurAdvisor):
    """Advisor that is not told how uncertain a throughput is."""

    def observe(self, trial_id: str, epoch: int, point: Point, half: float = 0.0) -> bool:
        """See `Method`."""
        return super().observe(trial_id, epoch, point)


def random_halving(problem: Problem, runs: int, seed: int, setting: Setting) -> OurAdvisor:
    """Random configurations under the Advisor's non-dominated successive halving."""
    budget = {"epochs": problem.max_epoch, "total_epochs": runs * problem.max_epoch}
    sections = {"searcher": {"name": "random"}, "stopping": {"name": "halving"}, "budget": budget}
    return OurAdvisor(problem, runs, seed, setting, **sections)


class _Random:
    """Random search."""

    def __init__(self, problem: Problem, runs: int, seed: int, setting: Setting) -> None:
        self._problem, self._generator, self._numbers = problem, np.random.default_rng(seed), itertools.count()

    def propose(self) -> Proposal:
        return Proposal(f"{next(self._numbers)}", sample(self._problem, self._generator))

    def observe(self, trial_id: str, epoch: int, point: Point, half: float = 0.0) -> bool:
        return True

    def finish(self, trial_id: str, end: End, point: Point) -> None:
        pass


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


class _AxQLogNEHVI:
    """Ax with its defaults: BoTorch's qLogNEHVI after Sobol points."""

    def __init__(self, problem: Problem, runs: int, seed: int, setting: Setting) -> None:
        from ax.api.client import Client
        from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig

        logging.disable(logging.WARNING)
        warnings.simplefilter("ignore")
        types = {bool: "bool", int: "int", float: "float", str: "str"}
        parameters: list[Any] = []
        for name, (kind, *details) in problem.space.items():
            if kind == "cat":
                values = [value.item() if isinstance(value, np.generic) else value for value in details[0]]
                of_type = types[type(values[0])]
                is_ordered = of_type in ("int", "float")
                parameters.append(ChoiceParameterConfig(name, values, of_type, is_ordered=is_ordered))
            else:
                low, high, log = details
                parameters.append(RangeParameterConfig(name, (low, high), kind, scaling="log" if log else "linear"))
        self._client = Client(random_seed=seed)
        self._client.configure_experiment(parameters=parameters)
        self._client.configure_optimization(objective=", ".join(METRICS))

    def propose(self) -> Proposal:
        ((number, config),) = self._client.get_next_trials(max_trials=1).items()
        return Proposal(f"{number}", config)

    def observe(self, trial_id: str, epoch: int, point: Point, half: float = 0.0) -> bool:
        return True

    def finish(self, trial_id: str, end: End, point: Point) -> None:
        if end == "infeasible":
            self._client.mark_trial_failed(trial_index=int(trial_id))
        else:
            told = {METRICS[0]: point[0], METRICS[1]: math.log10(point[1])}
            self._client.complete_trial(trial_index=int(trial_id), raw_data=told)


def _grace_epochs(problem: Problem) -> int:
    """Return the first epoch at which a trial may stop: 1/52 of the epochs, one epoch on lcbench.

    The default of both methods, 1 of 428 epochs, stops trials after almost no training; and MOASHA, which sorts all
    trials of a rung whenever one arrives, would take hours for the thousands of trials.
    """
    return max(1, problem.max_epoch // 52)


@dataclass
class _RayTrial:
    """The part of Ray's Trial that its ASHA reads."""

    trial_id: str
    last_result: dict[str, Any] = field(default_factory=dict)


class _RayOptunaAsha:
    """OptunaSearch on both metrics with ASHA on accuracy, called as Ray's controller calls them."""

    def __init__(self, problem: Problem, runs: int, seed: int, setting: Setting) -> None:
        from ray.tune.schedulers import AsyncHyperBandScheduler
        from ray.tune.search.optuna import OptunaSearch

        self._searcher = OptunaSearch(distributions(problem), metric=list(METRICS), mode=["max", "max"], seed=seed)
        self._scheduler = AsyncHyperBandScheduler(
            metric="accuracy", mode="max", max_t=problem.max_epoch, grace_period=_grace_epochs(problem)
        )
        self._trials: dict[str, _RayTrial] = {}

    def propose(self) -> Proposal:
        trial = _RayTrial(f"{len(self._trials)}")
        self._trials[trial.trial_id] = trial
        config = self._searcher.suggest(trial.trial_id)
        self._scheduler.on_trial_add(None, trial)
        return Proposal(trial.trial_id, config)

    def observe(self, trial_id: str, epoch: int, point: Point, half: float = 0.0) -> bool:
        trial = self._trials[trial_id]
        trial.last_result = {**dict(zip(METRICS, point, strict=True)), "training_iteration": epoch}
        decision = self._scheduler.on_trial_result(None, trial, trial.last_result)
        if decision != "STOP":
            self._searcher.on_trial_result(trial_id, trial.last_result)
        return bool(decision != "STOP")

    def finish(self, trial_id: str, end: End, point: Point) -> None:
        if end == "infeasible":
            self.observe(trial_id, 1, point)
        trial = self._trials[trial_id]
        self._scheduler.on_trial_complete(None, trial, trial.last_result)  # Ray calls both, also for stopped trials
        self._searcher.on_trial_complete(trial_id, result=trial.last_result)


class _SyneTuneMoasha:
    """Syne Tune's MOASHA: random configurations, halving by non-domination."""

    def __init__(self, problem: Problem, runs: int, seed: int, setting: Setting) -> None:
        logging.disable(logging.INFO)  # recommends extras on import
        from syne_tune.backend.trial_status import Trial
        from syne_tune.optimizer.schedulers.multiobjective import non_dominated_priority
        from syne_tune.optimizer.schedulers.multiobjective.moasha import MOASHA

        non_dominated_priority.pareto_efficient = _pareto_efficient
        non_dominated_priority.compute_epsilon_net = _spread_out
        np.random.seed(seed)  # suggest() ignores `random_seed` and draws from NumPy's global generator
        self._scheduler = MOASHA(
            _syne_tune_space(problem),
            metrics=list(METRICS),
            do_minimize=False,
            time_attr="epoch",
            max_t=problem.max_epoch,
            grace_period=_grace_epochs(problem),
            random_seed=seed,
        )
        self._make_trial = Trial
        self._trials: list[Any] = []
        self._last: dict[str, Any] = {}

    def propose(self) -> Proposal:
        config = self._scheduler.suggest().config
        trial = self._make_trial(len(self._trials), config, datetime.datetime.now())
        self._trials.append(trial)
        self._scheduler.on_trial_add(trial)
        return Proposal(f"{trial.trial_id}", config)

    def observe(self, trial_id: str, epoch: int, point: Point, half: float = 0.0) -> bool:
        self._last = {**dict(zip(METRICS, point, strict=True)), "epoch": epoch}
        return bool(self._scheduler.on_trial_result(self._trials[int(trial_id)], self._last) == "CONTINUE")

    def finish(self, trial_id: str, end: End, point: Point) -> None:
        trial = self._trials[int(trial_id)]
        if end == "infeasible":
            self.observe(trial_id, 1, point)
        if end == "complete":
            self._scheduler.on_trial_complete(trial, self._last)
        else:
            self._scheduler.on_trial_remove(trial)


def _pareto_efficient(losses: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Faster replacement of Syne Tune's function, which takes most of the time with thousands of trials."""
    efficient: NDArray[np.bool_] = moocore.is_nondominated(losses, keep_weakly=True)
    return efficient


def _spread_out(losses: NDArray[np.float64], dim: int | None = None) -> NDArray[np.int_]:
    """Ranks of Syne Tune's `compute_epsilon_net`, in O(n^2) instead of O(n^3)."""
    ranks = np.empty(len(losses), dtype=int)
    nearest = np.full(len(losses), np.inf)
    chosen = np.random.choice(len(losses)) if dim is None else losses[:, dim].argmin()
    for rank in range(len(losses)):
        ranks[chosen] = rank
        nearest = np.minimum(nearest, np.linalg.norm(losses - losses[chosen], axis=-1))
        nearest[chosen] = -np.inf
        chosen = nearest.argmax()
    return ranks


def distributions(problem: Problem) -> dict[str, optuna.distributions.BaseDistribution]:
    """Return the problem's space as Optuna distributions."""
    kinds = {"int": optuna.distributions.IntDistribution, "float": optuna.distributions.FloatDistribution}
    return {
        name: optuna.distributions.CategoricalDistribution(details[0])
        if kind == "cat"
        else kinds[kind](details[0], details[1], log=details[2])
        for name, (kind, *details) in problem.space.items()
    }


def _syne_tune_space(problem: Problem) -> dict[str, Any]:
    from syne_tune import config_space as words

    makers = {("int", False): words.randint, ("int", True): words.lograndint}
    makers |= {("float", False): words.uniform, ("float", True): words.loguniform}
    return {
        name: words.choice(list(details[0])) if kind == "cat" else makers[kind, details[2]](*details[:2])
        for name, (kind, *details) in problem.space.items()
    }


METHODS: Mapping[str, Callable[[Problem, int, int, Setting], Method]] = {
    "ours": OurAdvisor,
    "ours_without_errors": OurAdvisorWithoutErrors,
    "random": _Random,
    "random_halving": random_halving,
    "optuna_tpe": optuna_tpe,
    "optuna_tpe_multivariate": optuna_tpe_multivariate,
    "optuna_nsga2": optuna_nsga2,
    "optuna_gp": OptunaGP,
    "ax_qlognehvi": _AxQLogNEHVI,
    "ray_optuna_asha": _RayOptunaAsha,
    "syne_tune_moasha": _SyneTuneMoasha,
}
# TPE by the way it is told that a configuration cannot run, see `out_of_memory.py`
TOLD: Mapping[str, Callable[[Problem, int, int, Setting], Method]] = {
    f"optuna_tpe_{refused}": functools.partial(optuna_tpe, refused=refused) for refused in get_args(Refused)
}
OURS = ("ours", "ours_without_errors", "random_halving")
STOPPING = ("random_halving", "ray_optuna_asha", "syne_tune_moasha")

_REVISION = 2  # raise it when a baseline is called differently
_PACKAGES = {"optuna": "optuna", "ray": "ray", "syne": "syne-tune", "ax": "ax-platform", "random": "numpy"}


def method_version(method: str) -> str | None:
    """Return the versions that decide the results of a method, or None if its package is not installed."""
    if method in OURS:
        return f"search {_sources_digest()}"
    package = _PACKAGES[method.split("_")[0]]
    try:
        parts = [package, "optuna"] if package == "ray" else [package]
        return f"{_REVISION} " + ", ".join(f"{name} {version(name)}" for name in parts)
    except PackageNotFoundError:
        return None


def _sources_digest() -> str:
    """Hash of the modules of `search` that the Advisor has imported."""
    digest = hashlib.sha256()
    for name in sorted(name for name in sys.modules if name.startswith("search.")):
        digest.update(Path(sys.modules[name].__file__ or "").read_bytes())
    return digest.hexdigest()[:12]
