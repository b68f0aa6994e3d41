"""What searches: the Advisor, and what a user would take instead, each asked for one trial at a time.

Every method is driven by its own public interface, in one process and one trial after the other, with its own
defaults. Of a setting that cannot run, the Advisor is told so; the others are told accuracy and throughput 0, as those
do who have recorded these problems.
"""

from __future__ import annotations

import datetime
import functools
import hashlib
import itertools
import logging
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
Setting = Literal["full", "short"]  # see `search_quality.py`


class Method(Protocol):
    """A search that is in progress."""

    def propose(self) -> Proposal | None:
        """The next trial; None: no more."""
        ...

    def observe(self, trial_id: str, epoch: int, point: Point) -> bool:
        """Whether to go on after this epoch."""
        ...

    def finish(self, trial_id: str, end: End, point: Point) -> None:
        """What became of the trial, and its last point; (0, 0) where it cannot run."""
        ...


class OurAdvisor:
    """The Advisor as a space file without further keys gives it; `sections` are such keys."""

    def __init__(self, problem: Problem, runs: int, seed: int, setting: Setting, **sections: Any) -> None:
        trials = {"trials": runs} if setting == "full" else {"total_epochs": runs * problem.max_epoch}
        budget = {"budget": {"epochs": problem.max_epoch, **trials}}
        self.advisor = Advisor(parse_space(space_mapping(problem, **(budget | sections))), seed=seed)

    def propose(self) -> Proposal | None:
        """As `Method` says."""
        return self.advisor.propose()

    def observe(self, trial_id: str, epoch: int, point: Point) -> bool:
        """As `Method` says."""
        return self.advisor.observe(trial_id, epoch, dict(zip(METRICS, point, strict=True))) is Decision.CONTINUE

    def finish(self, trial_id: str, end: End, point: Point) -> None:
        """As `Method` says."""
        self.advisor.finish(trial_id, end)


def random_halving(problem: Problem, runs: int, seed: int, setting: Setting) -> OurAdvisor:
    """Random configurations under the Advisor's non-dominated successive halving."""
    budget = {"epochs": problem.max_epoch, "total_epochs": runs * problem.max_epoch}
    sections = {"searcher": {"name": "random"}, "stopping": {"name": "halving"}, "budget": budget}
    return OurAdvisor(problem, runs, seed, setting, **sections)


class _Random:
    """Chance."""

    def __init__(self, problem: Problem, runs: int, seed: int, setting: Setting) -> None:
        self._problem, self._generator, self._numbers = problem, np.random.default_rng(seed), itertools.count()

    def propose(self) -> Proposal:
        return Proposal(f"{next(self._numbers)}", sample(self._problem, self._generator))

    def observe(self, trial_id: str, epoch: int, point: Point) -> bool:
        return True

    def finish(self, trial_id: str, end: End, point: Point) -> None:
        pass


class OptunaStudy:
    """An Optuna study with two directions, told final values."""

    def __init__(self, problem: Problem, sampler: optuna.samplers.BaseSampler, refused: Refused = "zeros") -> None:
        """`refused`: how it is told that a setting cannot run."""
        self._refused = refused
        self._distributions = distributions(problem)
        self._study = optuna.create_study(directions=["maximize", "maximize"], sampler=sampler)
        self.trials: dict[str, optuna.Trial] = {}

    def propose(self) -> Proposal:
        """As `Method` says."""
        trial = self._study.ask(self._distributions)
        self.trials[f"{trial.number}"] = trial
        return Proposal(f"{trial.number}", trial.params)

    def observe(self, trial_id: str, epoch: int, point: Point) -> bool:
        """It stops none."""
        return True

    def finish(self, trial_id: str, end: End, point: Point) -> None:
        """As `Method` says."""
        trial = self.trials[trial_id]
        if self._refused == "constraint":
            trial.set_constraint("runs", float(end == "infeasible"))  # zero is feasible
        if end == "infeasible" and self._refused == "failure":
            self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            self._study.tell(trial, point)


def optuna_tpe(problem: Problem, runs: int, seed: int, setting: Setting) -> OptunaStudy:
    """TPE as it comes out of the box."""
    return OptunaStudy(problem, optuna.samplers.TPESampler(seed=seed))


def _told(refused: Refused, problem: Problem, runs: int, seed: int, setting: Setting) -> OptunaStudy:
    return OptunaStudy(problem, optuna.samplers.TPESampler(seed=seed), refused)


def optuna_tpe_multivariate(problem: Problem, runs: int, seed: int, setting: Setting) -> OptunaStudy:
    """TPE with one density over all parameters."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return OptunaStudy(problem, optuna.samplers.TPESampler(seed=seed, multivariate=True))


def optuna_nsga2(problem: Problem, runs: int, seed: int, setting: Setting) -> OptunaStudy:
    """NSGA-II; its default population of 50 would be most of the budget."""
    return OptunaStudy(problem, optuna.samplers.NSGAIISampler(seed=seed, population_size=20))


def _grace_epochs(problem: Problem) -> int:
    """Before which nothing is stopped: a 52nd, one epoch on lcbench.

    The default of both, 1 epoch of 428, would end a run on next to nothing; and MOASHA, which sorts all that came to a
    rung whenever another comes, would not be through thousands of them in hours.
    """
    return max(1, problem.max_epoch // 52)


@dataclass
class _RayTrial:
    """As much of Ray's Trial as its ASHA looks at."""

    trial_id: str
    last_result: dict[str, Any] = field(default_factory=dict)


class _RayOptunaAsha:
    """Ray's OptunaSearch on both metrics under its ASHA on accuracy, called as Ray's controller calls them."""

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

    def observe(self, trial_id: str, epoch: int, point: Point) -> bool:
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
        self._scheduler.on_trial_complete(None, trial, trial.last_result)  # both, for stopped ones too
        self._searcher.on_trial_complete(trial_id, result=trial.last_result)


class _SyneTuneMoasha:
    """Syne Tune's MOASHA: random configurations, halving by non-domination."""

    def __init__(self, problem: Problem, runs: int, seed: int, setting: Setting) -> None:
        logging.disable(logging.INFO)  # it recommends extras on import
        from syne_tune.backend.trial_status import Trial
        from syne_tune.optimizer.schedulers.multiobjective import non_dominated_priority
        from syne_tune.optimizer.schedulers.multiobjective.moasha import MOASHA

        non_dominated_priority.pareto_efficient = _pareto_efficient
        non_dominated_priority.compute_epsilon_net = _spread_out
        np.random.seed(seed)  # its suggest() draws from NumPy's global generator, whatever `random_seed` says
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

    def observe(self, trial_id: str, epoch: int, point: Point) -> bool:
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
    """As Syne Tune's function of this name, which takes most of the time of a search with thousands of trials."""
    efficient: NDArray[np.bool_] = moocore.is_nondominated(losses, keep_weakly=True)
    return efficient


def _spread_out(losses: NDArray[np.float64], dim: int | None = None) -> NDArray[np.int_]:
    """As its `compute_epsilon_net`: ranks, each next point the farthest from those before; of time n^2, not n^3."""
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
    """A problem's space in Optuna's words."""
    return {name: _distribution(*details) for name, details in problem.space.items()}


def _distribution(kind: str, *details: Any) -> optuna.distributions.BaseDistribution:
    if kind == "cat":
        return optuna.distributions.CategoricalDistribution(details[0])
    low, high, log = details
    if kind == "int":
        return optuna.distributions.IntDistribution(low, high, log=log)
    return optuna.distributions.FloatDistribution(low, high, log=log)


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
    "random": _Random,
    "random_halving": random_halving,
    "optuna_tpe": optuna_tpe,
    "optuna_tpe_multivariate": optuna_tpe_multivariate,
    "optuna_nsga2": optuna_nsga2,
    "ray_optuna_asha": _RayOptunaAsha,
    "syne_tune_moasha": _SyneTuneMoasha,
}
# Optuna's TPE where it matters how it is told of what cannot run, see `out_of_memory.py`
TOLD: Mapping[str, Callable[[Problem, int, int, Setting], Method]] = {
    f"optuna_tpe_{refused}": functools.partial(_told, refused) for refused in get_args(Refused)
}
OURS = ("ours", "random_halving")
STOPPING = ("random_halving", "ray_optuna_asha", "syne_tune_moasha")

_REVISION = 2  # of this file: raise it when a baseline is driven otherwise than before
_PACKAGES = {"optuna": "optuna", "ray": "ray", "syne": "syne-tune", "random": "numpy"}


def method_version(method: str) -> str | None:
    """What decides the method's results besides problem and seed; None: its package is not installed."""
    if method in OURS:
        return f"search {_sources_digest()}"
    package = _PACKAGES[method.split("_")[0]]
    try:
        parts = [package, "optuna"] if package == "ray" else [package]
        return f"{_REVISION} " + ", ".join(f"{name} {version(name)}" for name in parts)
    except PackageNotFoundError:
        return None


def _sources_digest() -> str:
    """Of the files that make up the Advisor: what importing it has loaded from `search`."""
    digest = hashlib.sha256()
    for name in sorted(name for name in sys.modules if name.startswith("search.")):
        digest.update(Path(sys.modules[name].__file__ or "").read_bytes())
    return digest.hexdigest()[:12]
