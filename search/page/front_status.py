"""Status of each trial relative to the Pareto front: on it, tied with it, dominated, or not compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from search.front.candidates import NOT_COMPARED
from search.front.intervals import interval
from search.front.objective import measured
from search.record.dataframes import Run
from search.record.run_state import shown_state
from search.record.trial import Trial
from search.report.picks import Pick, picks

# In the order of the legend. Points are drawn in the reverse order, so that the front covers the others.
STATUSES = {
    "front": "on the Pareto front",
    "tie": "cannot be told apart from a point of the front",
    "dominated": "dominated",
    "excluded": f"complete, not compared: {NOT_COMPARED}",
    "running": "running or unfinished, latest measurement",
    "stopped": "stopped early, last measurement",
    "failed": "failed, last measurement",
}
# Classes of a trial's line in curves and parallel coordinates, in the order of the legend.
LINE_CLASSES = {
    "front": "on the front",
    "dominated": "other complete trials",
    "incomplete": "stopped, failed or unfinished",
}


@dataclass(frozen=True)
class FrontStatus:
    """A run with the status of each trial relative to the Pareto front."""

    run: Run
    of: Mapping[str, str]  # by trial: a key of STATUSES, or the trial's state if it has no point in the chart
    picks: list[Pick]
    is_running: bool = False

    def trials_to_draw(self) -> list[Trial]:
        """Trials with every objective measured, in drawing order: those on the front last."""
        order = list(reversed(STATUSES))
        trials = [t for t in self.run.state.trials.values() if measured(t.metrics, self.run.state.objectives)]
        known = [t for t in trials if self.of[t.trial_id] in STATUSES]
        return sorted(known, key=lambda t: order.index(self.of[t.trial_id]))

    def shown_state(self, trial: Trial) -> str:
        """State of a trial in words: see `shown_state`."""
        return shown_state(trial.state, self.is_running)

    def line_class(self, trial: Trial) -> str:
        """Key of LINE_CLASSES for a trial."""
        if trial.state != "complete":
            return "incomplete"
        return "front" if self.of[trial.trial_id] == "front" else "dominated"

    def in_line_order(self, trials: Iterable[Trial]) -> list[Trial]:
        """Trials in the drawing order of lines: those on the front last."""
        order = list(reversed(LINE_CLASSES))
        return sorted(trials, key=lambda t: order.index(self.line_class(t)))

    def line(self, trial: Trial, points: Iterable[tuple[float, float]]) -> dict[str, str]:
        """Return the template's values of a trial's line; points in percent from the top left corner."""
        path = "M" + "L".join(f"{x:.4g} {y:.4g}" for x, y in points)
        return {"d": path, "class": self.line_class(trial), "trial_id": trial.trial_id}

    def ties(self) -> list[str]:
        """Names of the trials that cannot be told apart from a point of the front, the most probable first."""
        return sorted(
            (t for t, name in self.of.items() if name == "tie"), key=lambda t: -self.run.front_probabilities[t]
        )

    def pick_names(self, trial: Trial) -> list[str]:
        """Names of the picks that are this trial."""
        return [pick.name for pick in self.picks if pick.trial is trial]

    def interval(self, trial: Trial, metric: str) -> tuple[float, float] | None:
        """The ends of a metric's 95% interval; None: not known, or the value is exact."""
        half = self.run.state.half_interval(trial, metric)
        if half is None:
            return None
        return interval(trial.metrics, metric, half)


def front_status(run: Run, is_running: bool = False) -> FrontStatus:
    """Determine the status of all trials of a run; `is_running`: it goes on."""
    front, probability = run.state.front(), run.front_probabilities
    alike = {trial.trial_id for place in run.front_places for trial in place.alternatives}

    def status(trial: Trial) -> str:
        if trial in front:
            return "front"
        if trial.trial_id in probability:
            return "tie" if trial.trial_id in alike else "dominated"
        if trial.state != "complete":
            return trial.state
        return "probed" if trial.kind == "probe" else "excluded"

    return FrontStatus(run, {name: status(t) for name, t in run.state.trials.items()}, picks(run), is_running)
