"""State of a run by its journal: each trial, its measurements, and the Pareto front among them."""

from __future__ import annotations

import copy
import math
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search.front.candidates import candidates, pareto_front, violated
from search.front.differences import Estimate
from search.front.intervals import HALF_95, half_interval, least_value
from search.front.objective import WORDS, Constraint, Objective, losses, read_constraint, reference_metrics
from search.front.paired import correlations as sample_correlations
from search.front.pareto import hypervolume, knee
from search.front.roles import FIRST_RATE, metric_label, rate_metric
from search.front.shared import shared_metrics
from search.front.targets import is_duration, target_of
from search.record.drawn_fronts import drawn_fronts
from search.record.events import (
    Again,
    BesideNeighbour,
    End,
    Event,
    Finish,
    Known,
    KnownMeasurement,
    Measurement,
    OnTestSet,
    Opening,
    Repeat,
    Resume,
    Retry,
    Start,
    Turn,
    Wait,
)
from search.record.expected import expected_again
from search.record.fields import RecordedBudget
from search.record.groups import Groups
from search.record.run_clock import RunClock
from search.record.trial import Trial
from search.record.turns import Turns
from search.states import STATES
from search.text.numbers import format_number, plus_minus
from trainables.contract import EPOCHS


def shown_state(state: str, is_running: bool) -> str:
    """Return the state of a trial in words: of a run that does not go on (`is_running`), none is still running."""
    return "unfinished" if state == "running" and not is_running else state


class RunState:
    """All trials of a run. Apply the journal's events in order, from the first on.

    One thread applies events; others take a `snapshot`, or hold the `lock` while they read.
    """

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.lock = threading.RLock()
        self.opening: Opening | None = None  # None: the run has not begun
        self.known: list[KnownMeasurement] = []  # of earlier runs
        self.budget = RecordedBudget()  # as a resume last extended it
        self.last_command: Sequence[str] = ()  # of the processes of the run
        self.trials: dict[str, Trial] = {}
        self.latest: type[Event] | None = None  # kind of the latest event
        self.end: str | None = None  # why no further trial was started; None: still running, or killed
        self.objectives: list[Objective] = []
        self.constraints: list[Constraint] = []
        self.clock = RunClock()
        self.turns = Turns()
        self._groups = Groups()
        self._front: list[Trial] | None = None
        self._draws: NDArray[np.bool_] | None = None
        self._expected: dict[str, dict[str, float]] = {}  # by metric and trial
        for event in events:
            self.apply(event)

    @property
    def info(self) -> Opening:
        """The first event: objectives, metrics with units, machine, data, versions, ..."""
        assert self.opening is not None, "the run has not begun"
        return self.opening

    def snapshot(self) -> RunState:
        """A copy for another thread; what events share and nobody changes is not copied."""
        with self.lock:
            copied = copy.copy(self)
            copied.trials = {name: trial.copied() for name, trial in self.trials.items()}
            copied._front, copied._draws, copied._expected = None, None, {}
            copied.turns = copy.deepcopy(self.turns)
            copied.clock = copy.copy(self.clock)
            copied._groups = self._groups.of(copied.trials)
            return copied

    def apply(self, event: Event) -> None:
        """Take in the next event. An event that says nothing of trials, and an unknown one, only moves the clock."""
        with self.lock:
            self._front, self._draws, self._expected = None, None, {}
            match event:
                case Opening() | Resume():
                    if isinstance(event, Opening):
                        self.opening, self.objectives = event, event.objectives
                        self.constraints = [read_constraint(text) for text in event.constraints]
                        names = [objective.metric for objective in event.objectives]
                        shared = shared_metrics(
                            event.trainable, event.parameters, names, event.metrics, event.stated_probed
                        )
                        self._groups = Groups(shared, event.parameters, event.objectives)
                    else:
                        self.end = None
                    self.budget = event.budget or self.budget
                    for trial in self.trials.values():
                        trial.waits_for = None
                        if trial.state == "running":  # perhaps with another length
                            self._join(trial)
                    self.last_command = event.command
                case Known():
                    self.known = [*self.known, *event.measurements]
                case End():
                    self.end = event.reason
                case Start() if event.trial_id not in self.trials:  # else it is taken up again after a resume
                    config, rate = dict(event.config), self.rate_metric
                    trial = Trial(event.trial_id, config, event.kind, event.time, rate_metric=rate, gpus=event.gpus)
                    self.trials[event.trial_id] = trial
                    self._join(trial)
                case BesideNeighbour() if event.trial_id in self.trials:
                    self.trials[event.trial_id].apply(event)
                case Wait() if event.trial_id in self.trials:
                    self.trials[event.trial_id].waits_for = event.reason
                case Measurement() | Retry() | Finish() | Repeat() | Again() | OnTestSet() if (
                    event.trial_id in self.trials
                ):
                    trial = self.trials[event.trial_id]
                    trial.apply(event)
                    self._groups.update(trial, event)
                    self._settle()
                case Turn() if {event.trial_id, event.other} <= self.trials.keys():
                    one, other = self._source(event.trial_id), self._source(event.other)
                    if one != other:
                        self.turns.add(one, other, event.rates)
                        self._settle()
            self.clock.advance(event, self._is_searching)
            self.latest = type(event)

    def _is_searching(self) -> bool:
        return not self.trials or any(trial.state == "running" for trial in self.trials.values())

    def twins(self, trial: Trial) -> list[Trial]:
        """Return the other complete trials with nearly the same settings, as far as these affect what is learned."""
        return self._groups.twins(trial)

    @property
    def knows_seeds(self) -> bool:
        """True if the spread between seeds was estimated, so that intervals have it."""
        return bool(self._groups.seed_spreads)

    def _join(self, trial: Trial) -> None:
        trial.length = self.length(trial)  # on which the schedule depends; a later `budget.epochs` may be another one
        self._groups.join(trial)

    def _source(self, trial_id: str) -> str:
        return self.trials[trial_id].source(self.rate_metric)

    def _settle(self) -> None:
        """Put levels and turns together, and give the rates that follow to the groups of the trials that had turns."""
        if not self.turns:
            return
        rate = self.rate_metric
        groups = {name: group for name in self.turns.names if (group := self.trials[name].sharing(rate))}
        levels = dict[str, Estimate]()
        for name, group in groups.items():
            group.settle({})
            measured = (trial for trial in group.measured if trial.rate > 0)
            levels[name] = next(measured, self.trials[name]).log_rate
        for name, found in self.turns.settle(levels).items():
            groups[name].settle(dict(zip((rate, f"{rate}_low", f"{rate}_high"), found.ratio, strict=True)))

    @property
    def pairs(self) -> list[tuple[Trial, Trial]]:
        """Trials whose rates were measured in turns, each standing for all that share its rate.

        Of these it is a point of the front or a candidate, where there is one.
        """
        compared = [*self.front(), *self.candidates()]
        known = {**self.trials, **{self._source(trial.trial_id): trial for trial in reversed(compared)}}
        return [(known[one], known[other]) for one, other in self.turns.pairs]

    def num_rounds(self, one: Trial, other: Trial) -> int:
        """Number of rounds in which the rates of the two, or of trials that share them, were measured in turns."""
        return self.turns.num_rounds(self._source(one.trial_id), self._source(other.trial_id))

    def rate_ratio(self, one: Trial, other: Trial) -> Estimate | None:
        """Logarithm of the ratio of two rates: by turns, or else by their intervals; None: one is not known."""
        if self._source(one.trial_id) == self._source(other.trial_id):
            return Estimate(0.0, 0.0)
        if (settled := self._turns_between(one, other)) is not None:
            return settled
        if not (one.rate > 0 and other.rate > 0):
            return None
        return one.log_rate - other.log_rate

    def _turns_between(self, one: Trial, other: Trial) -> Estimate | None:
        return self.turns.difference(self._source(one.trial_id), self._source(other.trial_id))

    def difference(self, one: Trial, other: Trial, metric: str) -> Estimate:
        """Difference of a metric, in its unit, with the standard error that both have together.

        Metrics of the same validation samples are compared sample by sample, where these are known. Exact values have
        no error.
        """
        lead = one.metrics.get(metric, math.nan) - other.metrics.get(metric, math.nan)
        if metric == self.rate_metric and (ratio := self._turns_between(one, other)) is not None:
            return Estimate(lead, ratio.deviation * other.rate)
        if one.source(metric) == other.source(metric):
            return Estimate(lead, 0.0)
        first, second = ((self.half_interval(trial, metric) or 0.0) / HALF_95 for trial in (one, other))
        alike = self.correlations([one, other], metric)[0, 1]
        return Estimate(lead, math.sqrt(max(0.0, first**2 + second**2 - 2 * alike * first * second)))

    def correlations(self, trials: Sequence[Trial], metric: str) -> NDArray[np.float64]:
        """Correlations of the errors of a metric: those of the same samples, as far as samples make up the errors."""
        whole = [self.half_interval(trial, metric) for trial in trials]
        of_samples = [half_interval(trial.own_metrics, metric) for trial in trials]
        pairs = zip(of_samples, whole, strict=True)
        shares = np.array([min(1.0, part / half) if part and half else 1.0 for part, half in pairs])
        matrix = sample_correlations([trial.samples(metric) for trial in trials]) * np.outer(shares, shares)
        np.fill_diagonal(matrix, 1.0)
        return matrix

    def counts(self) -> dict[str, int]:
        """Trials by state, all states; without the probes that only prepare others."""
        states = Counter(trial.state for trial in self.counted())
        return {state: states[state] for state in STATES}

    def shown_counts(self, is_running: bool) -> dict[str, int]:
        """Trials by `shown_state`, without states of no trial."""
        return {shown_state(state, is_running): total for state, total in self.counts().items() if total}

    def counted(self) -> list[Trial]:
        """The trials that the budget counts."""
        return [trial for trial in self.trials.values() if not self.is_preparing(trial)]

    def complete(self) -> list[Trial]:
        """The complete ones of them."""
        return [trial for trial in self.counted() if trial.state == "complete"]

    @property
    def baseline(self) -> Trial | None:
        """The trial of the space's baseline; None: the space has none, or it was not started."""
        return self.trials.get("t0001") if self.opening and (self.opening.space or {}).get("baseline") else None

    @property
    def complete_baseline(self) -> Trial | None:
        """The trial of the baseline, to which constraints refer; None: it is not complete, or there is none."""
        return self.baseline if self.baseline and self.baseline.state == "complete" else None

    @property
    def baseline_metrics(self) -> Mapping[str, float]:
        """Metrics of the complete baseline; empty without one."""
        return self.complete_baseline.metrics if self.complete_baseline else {}

    def preparing_probes(self) -> list[Trial]:
        """All trials that `is_preparing` is true for."""
        return [trial for trial in self.trials.values() if self.is_preparing(trial)]

    def is_preparing(self, trial: Trial) -> bool:
        """Return whether the trial is a probe that only finds settings for later training."""
        return trial.kind == "probe" and not self.is_probe_run

    def gpu_seconds(self) -> float:
        """Seconds of all trials, each times the GPUs that it holds, up to their last measurements."""
        return sum(trial.gpu_seconds for trial in self.trials.values())

    def length(self, trial: Trial) -> int:
        """Epochs after which a trial is complete."""
        ended = trial.length if trial.state != "running" else 0
        return ended or int(trial.config.get(EPOCHS) or self.budget.epochs)

    def candidates(self, among: Iterable[Trial] | None = None) -> list[Trial]:
        """Trials that may be compared, as `search.front.candidates`; `among`: only these."""
        if not self.objectives:  # the run has not begun
            return []
        compared = self.trials.values() if among is None else among
        return candidates(compared, self.objectives, self.constraints, self.baseline_metrics, self.is_probe_run)

    def violated(self, trial: Trial) -> list[str]:
        """Return the constraints that a trial violates, as the space file has them, with its value.

        Of one relative to the baseline, with the limit too: `val_loss <= 1.1 * baseline: 0.21, at most 0.14`.
        """
        texts = []
        for constraint in violated(trial.metrics, self.constraints, self.baseline_metrics):
            text = f"{constraint}: {format_number(trial.metrics[constraint.metric])}"
            if constraint.of_baseline and (given := constraint.given(self.baseline_metrics)):
                text += f", {WORDS[given.operator]} {format_number(given.bound)}"
            texts.append(text)
        return texts

    def fronts_among(self, trial_ids: Iterable[str], layers: int) -> list[Trial]:
        """The first fronts of these trials alone."""
        among = [trial for trial_id in trial_ids if (trial := self.trials.get(trial_id))]
        return pareto_front(self.candidates(among), self.objectives, layers)

    def front(self) -> list[Trial]:
        """The candidates that no other dominates, best in the first objective first."""
        if self._front is None:
            self._front = pareto_front(self.candidates(), self.objectives)
        return self._front

    def picked(self) -> list[Trial]:
        """Points of the front: the best of the first objective, the knee, the best of each other objective."""
        front = self.front()
        if not front:
            return []
        losses = self.losses(front)
        first, *others = (front[int(column.argmin())] for column in losses.T)
        return [first, front[knee(losses, self.losses(self.candidates()))], *others]

    @property
    def knee(self) -> Trial | None:
        """The point of the front that is the best compromise; None without a front."""
        picked = self.picked()
        return picked[1] if picked else None

    def front_draws(self) -> NDArray[np.bool_]:
        """Return the `drawn_fronts`, shape (draws, candidates). There must be a candidate."""
        if self._draws is None:
            self._draws = drawn_fronts(self)
        return self._draws

    def front_probabilities(self) -> dict[str, float]:
        """Probability of each candidate that it belongs to the front."""
        points = self.candidates()
        odds = self.front_draws().mean(axis=0) if points else []
        return {trial.trial_id: float(p) for trial, p in zip(points, odds, strict=True)}

    def luck(self, trial: Trial, metric: str) -> float:
        """Return by how much a metric of a trial is above what to expect of another training; 0: not known."""
        if metric not in self._expected:
            self._expected[metric] = expected_again(self, metric)
        expected = self._expected[metric].get(trial.trial_id)
        return 0.0 if expected is None else trial.metrics[metric] - expected

    def half_interval(self, trial: Trial, metric: str) -> float | None:
        """Half of the 95% interval of a trial's metric; None: not known, or the value is exact."""
        return half_interval(trial.metrics, metric, self.info.data_settings.get("val_images"))

    def format_metric(self, trial: Trial, metric: str) -> str:
        """The value of a trial's metric ± half of its 95% interval, or a question mark; empty: not measured."""
        metrics = trial.metrics
        if metric not in metrics:
            return ""
        half = self.half_interval(trial, metric)
        if not self.is_reached(trial, metric):
            return f"not reached in {format_number(metrics[metric])}"
        half = math.inf if half is None and metric == self.rate_metric else half
        return plus_minus(metrics[metric], half, least_value(metric))

    def is_reached(self, trial: Trial, metric: str) -> bool:
        """Return whether a trial reached the target of a metric, the bound of a constraint; True: it has none."""
        target = target_of(metric)
        if target is None:
            return True
        best = trial.metrics.get(target.best, math.nan)
        limits = (c for c in self.constraints if c.metric == target.best and not c.of_baseline)
        return all(c.excess(best) <= 0 for c in limits if c.bound == target.value)  # False for NaN

    @property
    def asked(self) -> list[str]:
        """Metrics of the objectives and of the constraints."""
        return [*(objective.metric for objective in self.objectives), *(limit.metric for limit in self.constraints)]

    @property
    def rate_metric(self) -> str:
        """Name of the training's rate."""
        return rate_metric(self.opening.metrics) if self.opening else FIRST_RATE

    def unit(self, metric: str) -> str:
        """Unit of a metric; empty: not known."""
        return self.info.metrics.get(metric, "")

    def is_rate(self, metric: str) -> bool:
        """Return whether a metric is a rate per second or joule, by its unit or its name."""
        return self.unit(metric).endswith(("/s", "/J")) or metric.endswith(("_per_second", "_per_joule"))

    def is_fraction(self, metric: str) -> bool:
        """Return whether a metric is a fraction, whose differences are told in points."""
        if unit := self.unit(metric):
            return unit == "fraction"
        known = ({**t.curve[t.epochs].metrics, **t.test_metrics} for t in self.trials.values() if t.curve)
        last = (metrics.get(metric, 0.0) for metrics in known)
        return "accuracy" in metric and not is_duration(metric) and not any(value > 1 for value in last)  # in percent

    def label(self, metric: str) -> str:
        """Name of a metric, marked if it was learned from generated images."""
        return metric_label(metric, self.info.data.name)

    def losses(self, trials: list[Trial]) -> NDArray[np.float64]:
        """Losses of measured trials, shape (num_trials, num_objectives), lower is better."""
        return losses([trial.metrics for trial in trials], self.objectives)

    def hypervolume(self) -> tuple[float, list[float]] | None:
        """Hypervolume of the front, and the reference point in the metrics' own units; None without a front."""
        points = self.candidates()
        if not points:
            return None
        table = self.losses(points)
        stated = reference_metrics(table, self.objectives)
        return hypervolume(table, losses([stated], self.objectives)[0]), list(stated.values())

    @property
    def is_probe_run(self) -> bool:
        """True if the run's trials are probes."""
        return self.opening is not None and self.opening.evaluation == "probe"

    def varying_parameters(self, trials: Iterable[Trial]) -> list[str]:
        """Parameters that differ between these trials, in the space file's order. One that is absent differs too."""
        trials = list(trials)
        return [name for name in self.setting_names(trials) if len({repr(t.config.get(name)) for t in trials}) > 1]

    def setting_names(self, trials: Iterable[Trial]) -> list[str]:
        """Names of all settings of these trials: those that the search chose come first, in the space file's order."""
        return list(dict.fromkeys([*self.parameters(), *(name for trial in trials for name in trial.config)]))

    def ordered_config(self, trial: Trial) -> dict[str, Any]:
        """A trial's configuration: what was chosen, in the space file's order, then what was fixed."""
        chosen = [name for name in self.parameters() if name in trial.config]
        return {name: trial.config[name] for name in dict.fromkeys([*chosen, *trial.config])}

    def parameters(self) -> list[str]:
        """Names of what the search chose, in the space file's order."""
        return list(self.opening.parameters) if self.opening else []
