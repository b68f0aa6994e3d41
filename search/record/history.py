"""What the journal says so far: each trial, its measurements, and the Pareto front among them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search.front.certainty import front_probability
from search.front.objective import Constraint, Objective, losses, measured, read_constraint
from search.front.pareto import hypervolume, is_pareto_optimal, reference_point
from search.front.repeats import merged
from search.record.journal import Event
from search.text.wording import half_width

STATES = ("running", "complete", "stopped", "infeasible", "failed")


@dataclass
class Trial:
    """One trial, as far as the journal tells. Without a `finish` event its state is `running`."""

    trial_id: str
    config: dict[str, Any]
    kind: str
    started_at: float  # seconds since 1970
    state: str = "running"
    reason: str | None = None
    seconds: float = math.nan  # in the workers' hands
    setup_seconds: float = math.nan  # waiting for workers
    retries: int = 0
    curve: dict[int, Event] = field(default_factory=dict)  # by epoch; of an epoch reported twice, the later report
    tested: dict[str, float] = field(default_factory=dict)
    repeats: list[dict[str, float]] = field(default_factory=list)  # what probes of it measured again, at the end
    finished_at: float = math.nan  # seconds since 1970
    verdict: dict[str, Any] | None = None  # what bound it, and what would help: the fields of `contract.Verdict`

    @property
    def epochs(self) -> int:
        """Epochs measured."""
        return max(self.curve, default=0)

    @property
    def metrics(self) -> dict[str, float]:
        """The last measurement, merged with its repeats, and what the test set says where it was asked."""
        last = self.curve[self.epochs]["metrics"] if self.curve else {}
        return {**merged(last, self.repeats), **self.tested} if self.repeats else {**last, **self.tested}


class History:
    """All trials of a run. Apply the journal's events in order, from the first on."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.info: Event = {}  # the `run` event
        self.known: list[dict[str, Any]] = []  # what earlier runs measured: config, metrics, source
        self.budget: dict[str, Any] = {}  # as a resume last extended it
        self.trials: dict[str, Trial] = {}
        self.end: str | None = None  # why no further trial was started; None: still running, or killed
        self.objectives: list[Objective] = []
        self._constraints: list[Constraint] = []
        self._seconds = 0.0  # of the processes before this one
        self._resumed_at = self._last_at = math.nan
        self._front: list[Trial] | None = None
        for event in events:
            self.apply(event)

    def apply(self, event: Event) -> None:
        """Take in the next event. Events that say nothing of trials, and unknown ones, only move the clock."""
        self._front = None
        if event["event"] in ("run", "resume"):
            self._begin(event)
        elif event["event"] == "known":
            self.known += event["measurements"]
        elif event["event"] == "end":
            self.end = event.get("reason")
        elif event["event"] == "start":
            self._start(event)
        elif (trial := self.trials.get(event.get("trial_id", ""))) is not None:
            _apply(trial, event)
        self._last_at = event["time"]

    def counts(self) -> dict[str, int]:
        """Trials by state, all states; without the probes that only prepare others."""
        states = Counter(trial.state for trial in self.counted())
        return {state: states[state] for state in STATES}

    def counted(self) -> list[Trial]:
        """The trials that the budget counts."""
        return [trial for trial in self.trials.values() if self.probes or trial.kind != "probe"]

    @property
    def baseline(self) -> Trial | None:
        """The trial of what people run today; None: the space names none, or it was not started."""
        return self.trials.get("t0001") if self.info.get("space", {}).get("baseline") else None

    def preparing(self) -> list[Trial]:
        """The probes of a run that trains, by which it found the settings to train with."""
        return [] if self.probes else [trial for trial in self.trials.values() if trial.kind == "probe"]

    def active_seconds(self, now: float | None = None) -> float:
        """Wall time of the run without the gaps between its processes, up to the last event or to `now`."""
        since = (self._last_at if now is None else now) - self._resumed_at
        return self._seconds + (0.0 if since < 0 else since)  # below zero: a clock was set back

    def candidates(self) -> list[Trial]:
        """Trials that may be compared: complete, all objectives measured, within the constraints, at best fidelity.

        Best fidelity: the most epochs that any such trial has. A constraint on a metric not measured is not judged.
        """
        fit = [t for t in self.trials.values() if t.state == "complete" and measured(t.metrics, self.objectives)]
        bounds = self._bounds()
        fit = [t for t in fit if not any(b.violation(t.metrics.get(b.metric, math.nan)) > 0 for b in bounds)]
        best_fidelity = max((t.epochs for t in fit), default=0)
        return [t for t in fit if t.epochs == best_fidelity]

    def front(self) -> list[Trial]:
        """The candidates that no other dominates, sorted by the first objective, best first."""
        if self._front is None:
            points = self.candidates()
            table = self.losses(points)
            optimal = is_pareto_optimal(table)
            self._front = [points[i] for i in np.lexsort(table.T[::-1]) if optimal[i]]
        return self._front

    def certainty(self) -> dict[str, float]:
        """Of each candidate, how probable it is that it belongs to the front, by the uncertainty of what was measured.

        That of a rate is its 95% interval, that of an accuracy the luck of which pictures it was validated on; other
        metrics are taken as exact.
        """
        points = self.candidates()
        if not points:
            return {}
        deviations = np.array([[self.deviation(t, o.metric) for o in self.objectives] for t in points])
        odds = front_probability(self.losses(points), deviations)
        return {trial.trial_id: float(p) for trial, p in zip(points, odds, strict=True)}

    def deviation(self, trial: Trial, metric: str) -> float:
        """Standard deviation of what was measured of it, as `certainty` takes it; 0: taken as exact, or not known."""
        metrics = trial.metrics
        pictures = self.info.get("space", {}).get("data", {}).get("val_images")
        if metric == "val_accuracy" and pictures:
            return math.sqrt(max(0.0, metrics[metric] * (1 - metrics[metric])) / pictures)
        half = half_width(metrics, metric)
        return 0.0 if half is None or not math.isfinite(half) else half / 1.96

    def losses(self, trials: list[Trial]) -> NDArray[np.float64]:
        """Losses of measured trials, shape (num_trials, num_objectives), lower is better."""
        return losses([trial.metrics for trial in trials], self.objectives)

    def hypervolume(self) -> tuple[float, list[float]] | None:
        """What the front dominates, and the reference point in the metrics' own units; None without a front."""
        points = self.candidates()
        if not points:
            return None
        table = self.losses(points)
        reference = reference_point(table)
        # a loss turned round once more is the metric again
        stated = [o.loss(float(bound)) for o, bound in zip(self.objectives, reference, strict=True)]
        return hypervolume(table, reference), stated

    @property
    def probes(self) -> bool:
        """Whether the run's trials are probes."""
        return bool(self.info.get("space", {}).get("evaluation") == "probe")

    def varying(self, trials: Iterable[Trial]) -> list[str]:
        """Parameters that differ between these trials, in the space file's order. One that is absent differs too."""
        trials = list(trials)
        names = dict.fromkeys([*self.parameters(), *(name for t in trials for name in t.config)])
        return [name for name in names if len({repr(t.config.get(name)) for t in trials}) > 1]

    def ordered(self, trial: Trial) -> dict[str, Any]:
        """A trial's configuration: what was chosen, in the space file's order, then what was fixed."""
        chosen = [name for name in self.parameters() if name in trial.config]
        return {name: trial.config[name] for name in dict.fromkeys([*chosen, *trial.config])}

    def parameters(self) -> list[str]:
        """Names of what the search chose, in the space file's order."""
        return list(self.info.get("space", {}).get("parameters", {}))

    def _bounds(self) -> list[Constraint]:
        """The constraints, those in parts of the baseline with its figures, as far as these are known."""
        baseline = self.baseline.metrics if self.baseline and self.baseline.state == "complete" else {}
        return [bound for constraint in self._constraints if (bound := constraint.given(baseline))]

    def _begin(self, event: Event) -> None:
        """A process takes the run up; the time between the processes is nobody's."""
        if event["event"] == "run":
            self.info = event
            self.objectives = [Objective(o["metric"], o["goal"]) for o in event["objectives"]]
            self._constraints = [read_constraint(text) for text in event.get("constraints", [])]
        else:
            self._seconds += max(0.0, self._last_at - self._resumed_at)
            self.end = None
        self.budget = event.get("budget", self.budget)
        self._resumed_at = event["time"]

    def _start(self, event: Event) -> None:
        """A trial taken up again after a resume is still the same trial."""
        name = event["trial_id"]
        if name not in self.trials:
            self.trials[name] = Trial(name, dict(event["config"]), event.get("kind", "train"), event["time"])


def _apply(trial: Trial, event: Event) -> None:
    match event["event"]:
        case "measurement":
            whole = all(type(value) is float for value in event["metrics"].values())
            # as it is, where it can be: a long run has 50,000 of them, and several histories share it
            trial.curve[event["epoch"]] = event if whole else {**event, "metrics": _numbers(event["metrics"])}
            trial.seconds = _number(event.get("seconds"))
        case "retry":
            trial.retries += 1
        case "finish":
            trial.state, trial.reason, trial.finished_at = event["state"], event.get("reason"), event["time"]
            if event.get("seconds") is not None:  # else nobody was left to say; the last measurement stands
                trial.seconds = event["seconds"]
            trial.setup_seconds = _number(event.get("setup_seconds"))
            trial.verdict = event.get("verdict")
        case "repeat":
            trial.repeats.append(_numbers(event["metrics"]))
        case "test":
            trial.tested = _numbers(event["metrics"])


def _numbers(metrics: Mapping[str, float | None]) -> dict[str, float]:
    return {name: _number(value) for name, value in metrics.items()}


def _number(value: float | None) -> float:
    """In the journal, null is a number that could not be measured."""
    return math.nan if value is None else float(value)
