"""Ray Tune's OptunaSearch with ASHA as a method of the race."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")

from method import End, Setting, grace_epochs
from optuna_methods import distributions
from problems import METRICS, Point, Problem

from search.advisor.proposal import Proposal


@dataclass
class _RayTrial:
    """The part of Ray's Trial that its ASHA reads."""

    trial_id: str
    last_result: dict[str, Any] = field(default_factory=dict)


class RayOptunaAsha:
    """OptunaSearch on both metrics with ASHA on accuracy, called as Ray's controller calls them."""

    def __init__(self, problem: Problem, runs: int, seed: int, setting: Setting) -> None:
        from ray.tune.schedulers import AsyncHyperBandScheduler
        from ray.tune.search.optuna import OptunaSearch

        self._searcher = OptunaSearch(distributions(problem), metric=list(METRICS), mode=["max", "max"], seed=seed)
        self._scheduler = AsyncHyperBandScheduler(
            metric="accuracy", mode="max", max_t=problem.max_epoch, grace_period=grace_epochs(problem)
        )
        self._trials: dict[str, _RayTrial] = {}

    def propose(self) -> Proposal:
        """See `Method`."""
        trial = _RayTrial(f"{len(self._trials)}")
        self._trials[trial.trial_id] = trial
        config = self._searcher.suggest(trial.trial_id)
        self._scheduler.on_trial_add(None, trial)
        return Proposal(trial.trial_id, config)

    def observe(self, trial_id: str, epoch: int, point: Point, half: float = 0.0) -> bool:
        """See `Method`."""
        trial = self._trials[trial_id]
        trial.last_result = {**dict(zip(METRICS, point, strict=True)), "training_iteration": epoch}
        decision = self._scheduler.on_trial_result(None, trial, trial.last_result)
        if decision != "STOP":
            self._searcher.on_trial_result(trial_id, trial.last_result)
        return bool(decision != "STOP")

    def finish(self, trial_id: str, end: End, point: Point) -> None:
        """See `Method`."""
        if end == "infeasible":
            self.observe(trial_id, 1, point)
        trial = self._trials[trial_id]
        self._scheduler.on_trial_complete(None, trial, trial.last_result)  # Ray calls both, also for stopped trials
        self._searcher.on_trial_complete(trial_id, result=trial.last_result)
