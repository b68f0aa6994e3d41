"""Advisor as a method of the race, also with a part of it taken out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partialmethod
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from method import End, Setting
from problems import METRICS, Point, Problem, space_mapping

from search.advisor import acquisition, metric_model, surrogate, trial_model
from search.advisor.advisor import Advisor
from search.advisor.proposal import Decision, Proposal
from search.advisor.trial_model import TrialModel
from search.space.parsing import parse_space
from search.space.space import Space

# What each part of the searcher is replaced by, so that a race shows what it is worth.
PARTS: Mapping[str, Callable[[], AbstractContextManager[Any]]] = {
    # standard errors of measurements: none are given
    "errors": lambda: mock.patch.object(trial_model, "half_interval", return_value=None),
    # which settings affect which metric: each affects all
    "affects": lambda: mock.patch.object(Space, "affecting", lambda self, what: set(self.parameters)),
    # running trials: they are not counted on
    "running": lambda: mock.patch.object(TrialModel, "_expect_others", return_value=None),
    # the gain's maximum: the best of the first candidates
    "climbing": lambda: mock.patch.object(trial_model, "STEPS", trial_model.STEPS[:1]),
    # candidates near the front: random ones alone
    "front": lambda: mock.patch.object(trial_model, "STARTS", 0),
    # transformed losses: as they are
    "scales": lambda: mock.patch.object(trial_model, "warp_losses", lambda losses: (losses, np.ones(len(losses)))),
    # probability that a configuration runs: 1
    "feasibility": lambda: mock.patch.object(trial_model, "FEASIBILITY_POWER", 0),
    # uncertainty: the improvement of the predicted means
    "uncertainty": lambda: mock.patch.object(
        trial_model,
        "expected_improvement",
        lambda means, deviations, *front: acquisition.expected_improvement(means, 1e-3 * deviations, *front),
    ),
    # gains free of noise: with what noise leaves uncertain of measured configurations
    "noise_free": lambda: mock.patch.object(TrialModel, "gain", partialmethod(TrialModel.gain, is_new=False)),
    # fitted hyperparameters: the priors' means
    "fitting": lambda: mock.patch.object(surrogate, "minimize", lambda loss, means, **_: SimpleNamespace(x=means)),
    # levels, spreads and errors of the stages of curves: as if all stages were alike
    "stages": lambda: mock.patch.object(
        metric_model, "curve_levels", lambda trials, progress, values: (0.0, 1.0, np.zeros(len(values)))
    ),
    # forecasts of curves: every trial is trained to its end
    "curves": lambda: mock.patch.object(TrialModel, "reason_to_stop", return_value=None),
}


class OurAdvisor:
    """Advisor with the defaults of a space file; `sections` are further keys.

    In `four` its budget is in trials, each trained to its end; else in epochs, and it may stop trials.
    """

    def __init__(self, problem: Problem, runs: int, seed: int, setting: Setting, **sections: Any) -> None:
        most = {"trials": runs} if setting == "four" else {"total_epochs": runs * problem.max_epoch}
        budget = {"epochs": problem.max_epoch, **most}
        self.advisor = Advisor(parse_space(space_mapping(problem, budget=budget, **sections)), seed=seed)

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


class OurAdvisorWithout(OurAdvisor):
    """Advisor with one of `PARTS` taken out."""

    def __init__(self, part: str, problem: Problem, runs: int, seed: int, setting: Setting) -> None:
        self._part = part
        with PARTS[part]():
            super().__init__(problem, runs, seed, setting)

    def propose(self) -> Proposal | None:
        """See `Method`."""
        with PARTS[self._part]():
            return super().propose()

    def observe(self, trial_id: str, epoch: int, point: Point, half: float = 0.0) -> bool:
        """See `Method`."""
        with PARTS[self._part]():
            return super().observe(trial_id, epoch, point, half)

    def finish(self, trial_id: str, end: End, point: Point) -> None:
        """See `Method`."""
        with PARTS[self._part]():
            super().finish(trial_id, end, point)
