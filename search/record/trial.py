"""Trial of a run, as far as the journal tells."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from search.front.differences import Estimate
from search.front.intervals import UNKNOWN_DEVIATION, merge_repeats, relative_deviation
from search.front.neighbour import Neighbour, updated
from search.front.roles import FIRST_RATE
from search.record.events import Again, BesideNeighbour, Finish, Measurement, OnTestSet, Repeat, Retry
from trainables.contract import STAGES, Scalar, Verdict

if TYPE_CHECKING:
    from search.record.groups import Group

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
        """`own_metrics`, with those replaced that trials share whose settings differ only where they have no effect.

        A learned metric that the trial measured and that was not a number stays so.
        """
        metrics = self.own_metrics
        lost = [name for name, value in metrics.items() if math.isnan(value)]
        for group in self.groups if self.curve else ():
            metrics |= group.metrics(self.epochs)
            if lost and group.shares.learned:
                metrics |= {name: math.nan for name in lost if name in group.shares.names}
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
