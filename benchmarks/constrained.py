"""Search methods that are told of a constraint. The others of `baselines.py` know of none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from method import End, Setting
from optuna_methods import OptunaStudy
from our_methods import OurAdvisor
from problems import METRICS, Config, Point, Problem

from search.advisor.proposal import Decision, Proposal
from search.front.objective import Constraint


@dataclass(frozen=True)
class Limit:
    """Constraint on the trials of a recorded problem. `value` returns its metric; (0, 0) is what cannot run."""

    constraint: Constraint
    value: Callable[[Config, Point], float]

    def violation(self, config: Config, point: Point) -> float:
        """Return by how much a trial exceeds the bound; zero or less if the constraint holds."""
        return self.constraint.violation(self.value(config, point))


class OursConstrained(OurAdvisor):
    """Advisor with a constraint in its space file."""

    def __init__(self, problem: Problem, runs: int, seed: int, setting: Setting, limit: Limit) -> None:
        super().__init__(problem, runs, seed, setting, constraints=[str(limit.constraint)])
        self._limit = limit
        self._configs: dict[str, Config] = {}

    def propose(self) -> Proposal | None:
        """Propose a trial and remember its configuration."""
        proposal = super().propose()
        if proposal:
            self._configs[proposal.trial_id] = proposal.config
        return proposal

    def observe(self, trial_id: str, epoch: int, point: Point, half: float = 0.0) -> bool:
        """Observe the objectives and the metric of the constraint."""
        metrics = dict(zip(METRICS, point, strict=True)) | self._limited(trial_id, point)
        return self.advisor.observe(trial_id, epoch, metrics) is Decision.CONTINUE

    def finish(self, trial_id: str, end: End, point: Point) -> None:
        """Finish the trial with the metric of the constraint."""
        self.advisor.finish(trial_id, end, metrics=self._limited(trial_id, point))

    def _limited(self, trial_id: str, point: Point) -> dict[str, float]:
        return {self._limit.constraint.metric: self._limit.value(self._configs[trial_id], point)}


class OptunaConstrained:
    """Optuna study whose trials have the constraint."""

    def __init__(self, study: OptunaStudy, limit: Limit) -> None:
        self._study, self._limit = study, limit
        self.propose, self.observe = study.propose, study.observe

    def finish(self, trial_id: str, end: End, point: Point) -> None:
        """Set the constraint, then finish the trial."""
        trial = self._study.trials[trial_id]
        trial.set_constraint(str(self._limit.constraint), self._limit.violation(trial.params, point))
        self._study.finish(trial_id, end, point)
