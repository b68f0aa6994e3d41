"""How each trial stands to the front: on it, not told apart from it, behind it, or not comparable with it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from search.front.objective import measured
from search.record.history import Trial
from search.report.front_tables import TIE
from search.report.picks import Pick, picks
from search.results import Run
from search.text.wording import spread

# In the order of the legend, and of what is drawn over what: the last words are drawn first.
STANDINGS = {
    "front": "on the Pareto front",
    "tie": "not told apart from it",
    "behind": "behind it",
    "beyond": "complete, not compared: beyond a constraint, or of fewer epochs",
    "running": "running, so far",
    "stopped": "stopped, as far as it came",
    "failed": "failed, as far as it came",
}


@dataclass(frozen=True)
class Standings:
    """What the sections of the page need to know of a run beside its history."""

    run: Run
    odds: Mapping[str, float]  # by trial: how probable it is that it belongs to the front; compared trials only
    of: Mapping[str, str]  # by trial: a key of STANDINGS, or its state where it has nothing to be drawn by
    picks: list[Pick] = field(default_factory=list)

    def drawn(self) -> list[Trial]:
        """Trials with every objective measured, those on the front last, for they are drawn over the others."""
        order = list(reversed(STANDINGS))
        trials = [t for t in self.run.history.trials.values() if measured(t.metrics, self.run.history.objectives)]
        known = [t for t in trials if self.of[t.trial_id] in STANDINGS]
        return sorted(known, key=lambda t: order.index(self.of[t.trial_id]))

    def pick_names(self, trial_id: str) -> list[str]:
        """What it is picked for."""
        return [pick.name for pick in self.picks if pick.trial.trial_id == trial_id]


def standings(run: Run) -> Standings:
    """Of all trials of a run."""
    odds = run.certainty
    front = {trial.trial_id for trial in run.history.front()}
    of = {name: _standing(trial, front, odds) for name, trial in run.history.trials.items()}
    return Standings(run, odds, of, picks(run))


def _standing(trial: Trial, front: set[str], odds: Mapping[str, float]) -> str:
    if trial.trial_id in front:
        return "front"
    if trial.trial_id in odds:
        return "tie" if odds[trial.trial_id] >= TIE else "behind"
    if trial.state != "complete":
        return trial.state
    return "probed" if trial.kind == "probe" else "beyond"


def stated(run: Run, trial: Trial, metric: str) -> str:
    """A metric with half of its interval, as far as that is known; empty: not measured."""
    if metric not in trial.metrics:
        return ""
    return spread(trial.metrics[metric], 1.96 * run.history.deviation(trial, metric) or None)


def interval(run: Run, trial: Trial, metric: str) -> tuple[float, float] | None:
    """The 95% interval by which the front's certainty was judged; None: the value is taken as exact."""
    half = 1.96 * run.history.deviation(trial, metric)
    value = trial.metrics[metric]
    return (value - half, value + half) if half > 0 and math.isfinite(half) else None
