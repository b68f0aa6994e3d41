"""Syne Tune's MOASHA as a method of the race."""

from __future__ import annotations

import datetime
import logging
from typing import Any

import moocore
import numpy as np
from method import End, Setting, grace_epochs
from numpy.typing import NDArray
from problems import METRICS, Point, Problem

from search.advisor.proposal import Proposal


class SyneTuneMoasha:
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
            grace_period=grace_epochs(problem),
            random_seed=seed,
        )
        self._make_trial = Trial
        self._trials: list[Any] = []
        self._last: dict[str, Any] = {}

    def propose(self) -> Proposal:
        """See `Method`."""
        config = self._scheduler.suggest().config
        trial = self._make_trial(len(self._trials), config, datetime.datetime.now())
        self._trials.append(trial)
        self._scheduler.on_trial_add(trial)
        return Proposal(f"{trial.trial_id}", config)

    def observe(self, trial_id: str, epoch: int, point: Point, half: float = 0.0) -> bool:
        """See `Method`."""
        self._last = {**dict(zip(METRICS, point, strict=True)), "epoch": epoch}
        return bool(self._scheduler.on_trial_result(self._trials[int(trial_id)], self._last) == "CONTINUE")

    def finish(self, trial_id: str, end: End, point: Point) -> None:
        """See `Method`."""
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


def _syne_tune_space(problem: Problem) -> dict[str, Any]:
    from syne_tune import config_space as words

    makers = {("int", False): words.randint, ("int", True): words.lograndint}
    makers |= {("float", False): words.uniform, ("float", True): words.loguniform}
    return {
        name: words.choice(list(details[0])) if kind == "cat" else makers[kind, details[2]](*details[:2])
        for name, (kind, *details) in problem.space.items()
    }
