"""Trial of a run, as far as the journal tells, and the trials that share metrics with it."""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from search.front.differences import Estimate
from search.front.intervals import UNKNOWN_DEVIATION, merge_repeats, relative_deviation
from search.front.neighbour import Neighbour, updated
from search.front.roles import FIRST_RATE
from search.front.seeds import Spread, over_seeds
from search.front.shared import SharedMetrics
from search.record.events import Again, BesideNeighbour, Finish, Measurement, OnTestSet, Repeat, Retry
from trainables.contract import STAGES, Scalar, Verdict

MOST_DEVIATION = 1.0  # largest standard error of the logarithm of a rate that is assumed


@dataclass
class Trial:
    """One trial, as far as the journal tells. Without a `finish` event its state is `running`."""

    trial_id: str
    config: dict[str, Any]
    kind: str
    started_at: float  # seconds since 1970
    state: str = "running"
    reason: str | None = None
    seconds: float = math.nan  # on the workers, without the wait for them
    setup_seconds: float = math.nan  # waiting for workers
    retries: int = 0
    waits_for: str | None = None  # while others on the cluster use it
    curve: dict[int, Measurement] = field(default_factory=dict)  # by epoch; the later of two reports of the same epoch
    test_metrics: dict[str, float] = field(default_factory=dict)
    test_failure: str | None = None
    repeats: list[dict[str, float]] = field(default_factory=list)  # what probes of it measured again, at the end
    again: list[Again] = field(default_factory=list)  # trained with other seeds, at the end
    failed_again: list[Again] = field(default_factory=list)  # likewise, but they failed
    finished_at: float = math.nan  # seconds since 1970
    verdict: Verdict | None = None
    rate_metric: str = FIRST_RATE
    gpus: int = 0
    length: int = 0  # epochs after which it is complete; 0: not known
    _neighbours: dict[bool, dict[tuple[str, Scalar], Neighbour]] = field(
        default_factory=lambda: {False: {}, True: {}}, repr=False, compare=False
    )  # False: at first, True: those that were measured again
    groups: tuple[Group, ...] = field(default=(), repr=False, compare=False)  # trials that share metrics with this one

    @property
    def rate(self) -> float:
        """Units per second; NaN: not measured."""
        return self.metrics.get(self.rate_metric, math.nan)

    @property
    def log_rate(self) -> Estimate:
        """Logarithm of the rate."""
        if not self.rate > 0:
            return Estimate(0.0, MOST_DEVIATION)
        deviation = relative_deviation(self.metrics, self.rate_metric) or UNKNOWN_DEVIATION
        return Estimate(math.log(self.rate), min(deviation, MOST_DEVIATION))

    @property
    def stages(self) -> dict[str, float]:
        """Seconds per step of each measured stage, in order; empty if no step was profiled."""
        seconds: dict[str, float] = {stage: self.metrics.get(f"{stage}_seconds", math.nan) for stage in STAGES}
        known = {stage: value for stage, value in seconds.items() if math.isfinite(value)}
        return known if sum(known.values()) > 0 else {}

    @property
    def gpu_seconds(self) -> float:
        """Seconds on the workers, up to the last measurement, times the GPUs that they hold."""
        return 0.0 if math.isnan(self.seconds) else self.gpus * self.seconds

    @property
    def epochs(self) -> int:
        """Epochs measured."""
        return max(self.curve, default=0)

    @property
    def measurements(self) -> list[dict[str, float]]:
        """The last measurement, and those that probes and trainings with other seeds added at the end."""
        return [self.curve[self.epochs].metrics, *self.repeats, *(event.metrics for event in self.again)]

    @property
    def own_metrics(self) -> dict[str, float]:
        """The last measurement, merged with its repeats, and the metrics on the test set if there are any."""
        last = self.curve[self.epochs].metrics if self.curve else {}
        return {**(merge_repeats(last, self.repeats) if self.repeats else last), **self.test_metrics}

    @property
    def metrics(self) -> dict[str, float]:
        """`own_metrics`, with those replaced that trials share whose settings differ only where they have no effect."""
        metrics = self.own_metrics
        for group in self.groups if self.curve else ():
            metrics |= group.metrics(self.epochs)
        return metrics

    def next_seed(self, default: int) -> int:
        """Return a seed that no trial has whose metrics this one shares; `default`: of the training."""
        learned = next((group.trials for group in self.groups if group.shares.learned), [self])
        seeds = (event.seed for trial in learned for event in (*trial.again, *trial.failed_again))
        return 1 + max(seeds, default=int(self.config.get("seed", default)))

    def sharing(self, metric: str) -> Group | None:
        """Group of the trials that share the metric with this one; None: no group does."""
        return next((group for group in self.groups if metric in group.shares.names), None)

    def source(self, metric: str) -> str:
        """Name of the first trial that shares the metric with this one."""
        sharing = self.sharing(metric)
        return sharing.trials[0].trial_id if sharing else self.trial_id

    def seed_deviation(self, metric: str) -> float:
        """Standard deviation of the metric between seeds, of a mean over the seeds of this trial; 0: not known."""
        sharing = self.sharing(metric)
        return sharing.seed_deviation(metric, self.epochs) if sharing else 0.0

    def samples(self, metric: str) -> str:
        """Values of the metric of single validation samples, of this trial or one that shares it; empty: unknown."""
        sharing = self.sharing(metric)
        trials = (self, *(sharing.trials if sharing else ()))
        kept = (trial.curve[self.epochs].samples for trial in trials if self.epochs in trial.curve)
        return next((samples[metric] for samples in kept if metric in samples), "")

    def copied(self) -> Trial:
        """Return a copy for another thread, which belongs to no group."""
        beside = copy.deepcopy(self._neighbours)
        repeats, again, failed = list(self.repeats), list(self.again), list(self.failed_again)
        copied = replace(self, curve=dict(self.curve), repeats=repeats, again=again, failed_again=failed)
        return replace(copied, _neighbours=beside, groups=())

    @property
    def neighbours(self) -> list[Neighbour]:
        """Configurations that differ in one setting and had turns beside this one; of some only the second attempt."""
        deviation = relative_deviation(self.own_metrics, self.rate_metric)
        return updated(self._neighbours[False].values(), self._neighbours[True], deviation)

    def apply(self, event: Measurement | Retry | Finish | Repeat | Again | BesideNeighbour | OnTestSet) -> None:
        """Take in an event of this trial."""
        match event:
            case Measurement():
                self.waits_for = None
                self.curve[event.epoch] = event
                self.seconds = math.nan if event.seconds is None else event.seconds
            case Retry():
                self.retries += 1
            case Finish():
                self.waits_for = None
                self.state, self.reason, self.finished_at = event.state, event.reason, event.time
                if event.seconds is not None:  # else the time of the last measurement stands
                    self.seconds = event.seconds
                self.setup_seconds = math.nan if event.setup_seconds is None else event.setup_seconds
                self.verdict = event.verdict
            case Repeat():
                self.repeats.append(event.metrics)
            case Again():
                (self.failed_again if event.reason else self.again).append(event)
            case BesideNeighbour(parameter=name, value=value):
                known = self._neighbours[event.again]
                if (name, value) not in known:
                    known[name, value] = Neighbour(name, event.old, value, measured_again=event.again)
                known[name, value].rounds.append(event.rates)
            case OnTestSet():
                self.test_metrics, self.test_failure = event.metrics, event.reason


@dataclass(eq=False)
class Group:
    """Trials that share metrics. A group is equal to itself alone."""

    shares: SharedMetrics
    trials: list[Trial] = field(default_factory=list)
    settled: dict[str, float] = field(default_factory=dict)  # metrics as turns against other groups have settled them
    seed_spreads: Mapping[str, Spread] = field(default_factory=dict)  # by metric, as far as seeds were compared
    _merged: dict[int, dict[str, float]] = field(default_factory=dict)  # by number of epochs

    @property
    def measured(self) -> list[Trial]:
        """The trials whose measurements count."""
        return [trial for trial in self.trials if trial.curve and trial.state != "failed"]

    def metrics(self, epochs: int) -> dict[str, float]:
        """The shared metrics, of trials with so many epochs if they take training; empty: of one trial alone."""
        learned = self.shares.learned
        epochs = epochs if learned else 0
        if epochs not in self._merged:
            if learned:
                measured = [trial.curve[epochs].metrics for trial in self.measured if epochs in trial.curve]
            else:
                measured = [metrics for trial in self.measured for metrics in trial.measurements]
            merged = self.shares.merge(measured)
            if learned and measured:
                merged |= over_seeds([merged or measured[0], *self._of_other_seeds(epochs)], self.seed_spreads)
            self._merged[epochs] = {**merged, **self.settled}
        return self._merged[epochs]

    def seed_deviation(self, metric: str, epochs: int) -> float:
        """Standard deviation between seeds, of a mean over those that were trained; 0: not known."""
        spread, value = self.seed_spreads.get(metric), self.metrics(epochs).get(metric, math.nan)
        return spread.deviation(value, 1 + len(self._of_other_seeds(epochs))) if spread else 0.0

    def _of_other_seeds(self, epochs: int) -> Collection[Mapping[str, float]]:
        """Metrics by seed: trials of the group with one seed are one training, of which the last counts."""
        trained = [trial for trial in self.trials if trial.epochs == epochs]
        return {event.seed: event.metrics for trial in trained for event in trial.again}.values()

    @property
    def first_complete(self) -> Trial | None:
        """The first complete trial, if there is one."""
        return next((trial for trial in self.trials if trial.state == "complete" and trial.epochs), None)

    def seeds(self) -> list[Mapping[str, float]]:
        """Metrics after the last epoch, one for each seed that was trained."""
        trained = [trial for trial in self.trials if trial.again and trial.curve]
        if not trained:
            return []
        first = trained[0].curve[trained[0].epochs].metrics
        return [first, *self._of_other_seeds(trained[0].epochs)]

    def of(self, trials: Mapping[str, Trial]) -> Group:
        """Return the group of these trials, which are copies by name."""
        group = replace(self, trials=[trials[trial.trial_id] for trial in self.trials], _merged=dict(self._merged))
        for trial in group.trials:
            trial.groups += (group,)
        return group

    def invalidate(self) -> None:
        """Discard what was computed, because a trial has changed."""
        self._merged.clear()
