"""Model of the trials: predicts all metrics of untried configurations and finds the one with the largest expected gain.

The gain of a configuration is its expected hypervolume improvement at full length, times the cubed probability of
feasibility: that it runs here and satisfies the constraints. For running trials, condition on the partial curve.
Swersky et al. 2014, "Freeze-thaw Bayesian optimization" (arXiv 1406.3896), on several objectives.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from search.advisor.acquisition import expected_improvement
from search.advisor.encoding import Array, Encoding, Rows
from search.advisor.metric_model import MetricModel, log_rates, warp_losses
from search.advisor.probe_tuner import ProbeTuner
from search.advisor.proposal import Proposal
from search.advisor.rungs import progress, rungs
from search.advisor.surrogate import rounded
from search.front.intervals import HALF_95, half_interval
from search.front.objective import Constraint, measured
from search.front.pareto import Losses, hypervolume, is_pareto_optimal, pareto_rank
from search.front.roles import rate_metric
from search.front.targets import is_duration
from search.record.events import KnownMeasurement
from search.space.space import Space
from search.states import State
from search.text.numbers import join_words
from trainables.contract import EPOCHS, Scalar

BASELINE = "t0001"  # trial of the baseline, if the space has one
FIRST_TRIALS, FIRST_FRACTION = 8, 0.25  # random trials before the model is used; at most this fraction of the budget
FIRST_MEASURED = 4  # configurations, at least, of each objective
FIRST_COMPLETE = 0.1  # of the full lengths of the budget: for first trials, as forecasts are learned from whole curves
CANDIDATES, STARTS = 300, 10  # random ones; configurations estimated to be on the front, whose neighbours are others
BEAM = 7  # best candidates that are kept, round by round, of themselves and their neighbours
STEPS = 0.2 / 1.5 ** np.arange(9)  # to a neighbour, of a range, by round
# Power of the probability of feasibility. On a toy problem 1 lost 18% of the trials to memory, 2 lost 14%, 3 and 4 lost
# 13%. A setting of two values, one of which ends in an error, is wrong in 4.3 of 20 proposals with 2, in 2.6 with 3.
FEASIBILITY_POWER = 3
FAILURE_NOISE = 0.1  # least standard error of a prediction whether a configuration runs, which is -1 or 1
EXCESS_NOISE = 0.01  # of a predicted excess, a logarithm: on toys, with 0.1 most trials lie just beyond a constraint
CONSTRAINT_MARGIN = 0.7  # excess; a constraint satisfied everywhere by more than a factor of two needs no model
PROBES_AN_HOUR = 120  # of the budget, at most: at ten seconds each they take a third of it
RATES_DIFFER_BY = 0.3  # relative, between settings; the first few measurements may be alike by chance
GOOD_ENOUGH = 0.95  # quantile of each loss over the trials; what is worse gains nothing, unless it is on the front
MAX_ON_FRONT = 128
# Of the expected gain of a new trial: the maximum over many candidates is biased upwards. On recorded curves
# 0.25 to 0.7 find about as much, 1 finds less, with random candidates, too.
NEW_TRIAL_FACTOR = 0.5


@dataclass(eq=False)
class ObservedTrial:
    """Trial as the search knows it. `metrics`: the finite values of its last measurement."""

    proposal: Proposal
    row: Rows
    length: int  # in epochs; 0: a probe
    is_preparatory: bool  # a probe before a training, which does not count as a trial
    epochs: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    why_stopped: str | None = None  # None: it was not told to stop
    state: State | None = None  # None: running
    measured_epoch: int = 0  # of its last measurement at a rung
    losses: list[float] | None = None  # at full length
    violates: bool = False  # a constraint; such a trial is on no front


@dataclass
class _FrontEstimate:
    optimal: Rows  # configurations whose predicted losses are non-dominated
    front: Losses  # predicted for trials at full length
    reference_point: Array


class TrialModel:
    """Model of all metrics of a trial. It depends on the measurements and their order only."""

    def __init__(self, space: Space) -> None:
        encoding = self._encoding = Encoding(space)
        self._space = space
        self._trained = [objective for objective in space.objectives if not space.is_probed(objective)]
        # on metrics that take training, so that early measurements of them can mislead
        self._learned_constraints = [limit for limit in space.all_constraints if space.is_learned(limit.metric)]
        self._learns_curves = space.stopping_rule != "none"  # else they would leave room for fewer trials in the models
        every = encoding.columns(space.parameters)
        probed, trained = encoding.columns(space.affecting("probed")), encoding.columns(space.affecting("trained"))
        decoupled, lengths_differ = space.evaluation == "decoupled", EPOCHS in space.parameters
        new_model = partial(MetricModel, encoding, equal_lengths=not lengths_differ)
        self._objectives = list[MetricModel]()
        for objective in space.objectives:
            is_probed = objective not in self._trained
            columns = probed if is_probed else every if is_duration(objective.metric) else trained
            scale, min_spread = (log_rates, RATES_DIFFER_BY) if is_probed and decoupled else (warp_losses, 0.0)
            learned = space.is_learned(objective.metric)
            self._objectives.append(new_model(columns, scale, min_spread, is_learned=learned))
        self._failure = new_model(every)
        self._excesses = {limit: new_model(every) for limit in space.all_constraints}
        # probes tune the training's rate, or else the first objective that they measure
        is_rate = [objective.metric == rate_metric(space.known_metrics) for objective in space.objectives]
        first = max(range(len(is_rate)), key=lambda i: (space.is_probed(space.objectives[i]), is_rate[i]))
        tuned = space.probe_tuned_parameters if len(self._trained) < len(is_rate) else set()
        most = PROBES_AN_HOUR * (space.budget.hours or math.inf)
        self.probe_tuner = ProbeTuner(encoding, self._objectives[first], tuned, self._feasibility, most)
        # objectives that the user bounds by the numbers of epochs in the space
        self._set_by_length = [i for i, o in enumerate(space.objectives) if lengths_differ and is_duration(o.metric)]
        self.trials: dict[str, ObservedTrial] = {}
        self._earlier: list[Rows] = []  # configurations of which earlier runs measured all objectives
        # by run on other data or another machine
        self._elsewhere = defaultdict[str, list[tuple[Rows, list[float]]]](list)
        self._tried: set[bytes] = set()
        # where decoupled, rates are known from probes, and accuracies depend on fewer parameters
        most_first = FIRST_MEASURED if decoupled else FIRST_TRIALS
        self._first_trials = round(min(most_first, FIRST_FRACTION * (space.budget.trials or math.inf)))
        self.num_started = 0  # trials, without preparatory probes
        self._first_complete = max(1, min(self._first_trials, round(FIRST_COMPLETE * space.budget.full_lengths)))
        self._to_the_end: list[ObservedTrial] = []  # of the first trials
        self._expected: Rows = np.empty((0, len(space.parameters)))  # of running trials
        self._estimate: _FrontEstimate | None = None

    def start(self, proposal: Proposal) -> ObservedTrial:
        """Record the start of a trial, and return it."""
        (row,) = self._encoding.rows([proposal.config])
        preparatory = proposal.kind != self._space.trial_kind
        length = 0 if preparatory else self._space.last_epoch(proposal.config)
        trial = self.trials[proposal.trial_id] = ObservedTrial(proposal, row, length, preparatory)
        if preparatory:
            self.probe_tuner.start(row)
            return trial
        self._tried.add(row.tobytes())
        self.num_started += 1
        if len(self._to_the_end) < self._first_complete:
            self._to_the_end.append(trial)
        return trial

    def is_rung(self, trial: ObservedTrial, epoch: int) -> bool:
        """Return whether the trial may be judged at this epoch, see `rungs`."""
        return self._learns_curves and epoch in rungs(trial.length)

    def observe(self, trial: ObservedTrial, epoch: int) -> None:
        """Learn the metrics of a probe, or those of a training at one of the `rungs`: others add no information.

        After a short epoch, a training may have no rate. Without one of the other objectives it does not count.
        """
        if trial.is_preparatory:
            self._learn(trial.row, 1.0, trial.metrics)
        elif self.is_rung(trial, epoch) and epoch > trial.measured_epoch and measured(trial.metrics, self._trained):
            trial.measured_epoch = epoch
            part = progress(epoch, trial.length, self._space.lengths[1])
            self._learn(trial.row, part, trial.metrics, self._learned_constraints)

    def finish(self, trial: ObservedTrial) -> dict[Constraint, float]:
        """Learn from a trial that has ended, see `Advisor.finish`; return the excesses of its constraints.

        Of a trial that ended early, nothing is known of constraints on metrics that take training.
        """
        is_complete = trial.state == "complete"
        if is_complete and not trial.is_preparatory and (losses := self._losses(trial.metrics)):
            trial.losses = losses
            self._learn(trial.row, 1.0, trial.metrics)
        has_learned = is_complete and (trial.is_preparatory or measured(trial.metrics, self._trained))
        runs = trial.state == "stopped" or has_learned
        if not runs and trial in self._to_the_end:
            self._to_the_end.remove(trial)  # the next one that starts takes its place
        self._failure.learn(trial.row, 1.0, -1.0 if runs else 1.0)
        excesses = self._learn_excesses(trial, self._space.all_constraints)
        if trial.proposal.trial_id == BASELINE:  # of trials that ended before it, not all could be judged
            relative = [limit for limit in self._excesses if limit.of_baseline]
            for other in self.trials.values():
                if other is not trial and other.state is not None:
                    self._learn_excesses(other, relative)
        self._invalidate()
        return excesses

    def _learn_excesses(self, trial: ObservedTrial, constraints: Iterable[Constraint]) -> dict[Constraint, float]:
        early = () if trial.state == "complete" else self._learned_constraints
        excesses = self._excesses_of(trial.metrics, (limit for limit in constraints if limit not in early))
        if trial.state != "failed":
            trial.violates |= any(excess > 0 for excess in excesses.values())
            for limit, excess in excesses.items():
                self._excesses[limit].learn(trial.row, 1.0, excess)
        return excesses

    def observe_earlier_run(self, known: KnownMeasurement) -> None:
        """Learn what an earlier run measured, here or elsewhere: on other data or another machine.

        It is no trial of this run: the same configuration may be proposed again.
        """
        (row,) = self._encoding.rows([known.config])
        self._learn(row, 1.0, metrics := finite(known.metrics), self._excesses)
        if self._losses(metrics):
            self._earlier.append(row)
        for model, _, loss, error in self._losses_and_errors(metrics := finite(known.elsewhere)):
            model.learn_elsewhere(known.run, row, loss, error)
        if losses := self._losses(metrics):
            self._elsewhere[known.run].append((row, losses))
            self._first_trials = min(self._first_trials, FIRST_MEASURED)

    def propose(self, rng: np.random.Generator) -> dict[str, Scalar]:
        """Return the untried configuration with the largest expected gain; a random one while there is little data."""
        if not self._has_too_little_data(self.num_started):
            self._expect_others()
            return self._encoding.config(self._best_candidate(rng)[0])
        choices = [self._encoding.random(rng, 64)]
        if self._elsewhere and self.num_started % 2 == 0:  # what was best there, in turn with what is random
            runs = (map(np.array, zip(*measured, strict=True)) for measured in self._elsewhere.values())
            choices.insert(0, np.vstack([rows[is_pareto_optimal(losses)] for rows, losses in runs]))
        choices = [self.probe_tuner.fastest(rows) for rows in choices]
        untried = [rows[self._are_untried(rows)] for rows in choices]
        rows = next((rows for rows in untried if len(rows)), choices[-1])
        odds = self._feasibility(rows)
        odds = (odds / odds.max()) ** FEASIBILITY_POWER if odds.max() > 0 else np.ones(len(rows))
        return self._encoding.config(rows[rng.choice(len(rows), p=odds / odds.sum())])

    def reason_to_stop(self, trial: ObservedTrial, epoch: int, rng: np.random.Generator) -> str | None:
        """Return why a trial should end at this epoch, a rung; None: it should continue.

        It continues while its remaining epochs promise as much gain per epoch as a new trial does.
        """
        if trial in self._to_the_end:
            return None
        if trial.measured_epoch != epoch:
            return "an objective had no finite value"
        if self._has_too_little_data(self.num_started - 1):
            first = join_words([each.proposal.trial_id for each in self._to_the_end])
            early = f"the first trials that have a rate, all but {first}, end early, so that more are tried"
            return early if self._losses(trial.metrics) else None
        self._expect_others(trial)
        own = float(self.gain(trial.row[None], is_new=False)[0]) / (trial.length - epoch)
        if own >= NEW_TRIAL_FACTOR * self._gain_per_epoch(rng):
            return None
        return "a new trial promised more gain per epoch"

    def expected_gain(self, rng: np.random.Generator) -> float | None:
        """Return the expected gain of the next trial, relative to the front's hypervolume; None: too little data."""
        if self._has_too_little_data(self.num_started) or not self._final():
            return None
        self._expect_others()
        estimate = self._estimate_front()
        dominated = hypervolume(estimate.front, estimate.reference_point)
        return self._best_candidate(rng)[1] / dominated if dominated else None

    def gain(self, rows: Rows, is_new: bool = True) -> Array:
        """Return the hypervolume that trials of these configurations are expected to add to the front, shape (m,).

        Of a new one, what noise leaves uncertain about those that were measured is no gain.
        """
        estimate = self._estimate_front()
        means, deviations = self._predict(rows, is_new)
        improvement = expected_improvement(means, deviations, estimate.front, estimate.reference_point)
        return rounded(improvement * self._feasibility(rows) ** FEASIBILITY_POWER)

    def _gain_per_epoch(self, rng: np.random.Generator) -> float:
        """Return the gain per epoch of the next trial: the best candidate with `gp`, else a random one."""
        if self._space.searcher.name == "gp":
            best, gain = self._best_candidate(rng)
            return gain / self._space.last_epoch(self._encoding.config(best))
        rows = self.probe_tuner.fastest(self._encoding.random(rng, CANDIDATES))
        return float(np.mean(self.gain(rows) / [self._space.last_epoch(self._encoding.config(row)) for row in rows]))

    def _losses(self, metrics: Mapping[str, float]) -> list[float] | None:
        """Return the loss of each objective; None: not all were measured."""
        objectives = self._space.objectives
        return [o.loss(metrics[o.metric]) for o in objectives] if measured(metrics, objectives) else None

    def _losses_and_errors(self, metrics: Mapping[str, float]) -> Iterator[tuple[MetricModel, bool, float, float]]:
        """Yield for each measured objective its model, whether it is probed, its loss and its standard error.

        The error is that of metrics that trials measure independently; 0 for the others. What is learned is measured on
        the same validation samples in all trials, and most of its interval stands for their choice. What remains is
        much alike in all trials, as the noise is that the model learns.
        """
        for objective, model in zip(self._space.objectives, self._objectives, strict=True):
            if (name := objective.metric) in metrics:
                half = 0.0 if model.is_learned else half_interval(metrics, name) or 0.0
                yield model, objective not in self._trained, objective.loss(metrics[name]), half / HALF_95

    def _excesses_of(self, metrics: Mapping[str, float], constraints: Iterable[Constraint]) -> dict[Constraint, float]:
        """Return excesses by constraint, without those whose metric or whose baseline is not measured yet."""
        first = self.trials.get(BASELINE)  # constraints refer to it only if the space has a baseline
        baseline = first.metrics if first and first.state == "complete" else {}
        given = {limit: limit.given(baseline) for limit in constraints if limit.metric in metrics}
        return {limit: at.excess(metrics[limit.metric]) for limit, at in given.items() if at}

    def _learn(
        self, row: Rows, part: float, metrics: Mapping[str, float], constraints: Iterable[Constraint] = ()
    ) -> None:
        """Learn the objectives among `metrics`, and what these say of the constraints."""
        for model, is_probed, loss, error in self._losses_and_errors(metrics):
            model.learn(row, 1.0 if is_probed else part, loss, error)
            if model is self.probe_tuner.rate:
                self.probe_tuner.learn(row, loss)
        for limit, excess in self._excesses_of(metrics, constraints).items():
            self._excesses[limit].learn(row, part, excess)
        self._invalidate()

    def _expect_others(self, judged: ObservedTrial | None = None) -> None:
        """Count on what the model predicts for the trials that are running, but for the one that is judged."""
        running = (t for t in self.trials.values() if t.state is None and not t.is_preparatory and t is not judged)
        expected = np.array([trial.row for trial in running], dtype=float).reshape(-1, self._expected.shape[1])
        if not np.array_equal(expected, self._expected):
            self._expected, self._estimate = expected, None
            for model in self._objectives:
                model.expect(expected)

    def _invalidate(self) -> None:
        self._estimate = None
        self.probe_tuner.invalidate()

    def _has_too_little_data(self, num_started: int) -> bool:
        num_measured = min(len(model.measured) for model in self._objectives)
        return num_started + len(self._earlier) < self._first_trials or num_measured < FIRST_MEASURED

    def _predict(self, rows: Rows, noise_free: bool = False) -> tuple[Array, Array]:
        """Return means and standard deviations of all objectives at full length, each (m, num_objectives)."""
        predicted = [model.predict(rows, noise_free) for model in self._objectives]
        return np.stack([mean for mean, _ in predicted], axis=1), np.stack([dev for _, dev in predicted], axis=1)

    def _feasibility(self, rows: Rows) -> Array:
        """Return the probability of running here and of satisfying all constraints, shape (m,)."""
        limits = [(self._failure, 0.0, FAILURE_NOISE)]
        limits += [(model, -CONSTRAINT_MARGIN, EXCESS_NOISE) for model in self._excesses.values()]
        odds = np.ones(len(rows))
        for model, limit, noise in limits:
            if model.max_value > limit:
                means, deviations = model.predict(rows)
                odds *= ndtr(-means / np.hypot(deviations, noise))  # that it is below zero
        return odds

    def _final(self) -> list[ObservedTrial]:
        """Return the trials of full length that may be on the front."""
        return [trial for trial in self.trials.values() if trial.losses is not None and not trial.violates]

    def _estimate_front(self) -> _FrontEstimate:
        if self._estimate is None:
            final = self._final()
            ranks = pareto_rank(np.array([trial.losses for trial in final]))
            kept = [final[i] for i in np.argsort(ranks, kind="stable")[:MAX_ON_FRONT]]
            known = (t for t in self.trials.values() if t.measured_epoch or t.losses is not None)
            others = [t for t in known if t.losses is None or t.violates][-MAX_ON_FRONT:]
            rows = np.vstack([self._expected, *(t.row for t in [*kept, *others]), *self._earlier[-MAX_ON_FRONT:]])
            means, _ = self._predict(rows)
            optimal = is_pareto_optimal(means)
            nadir = means[optimal].max(axis=0) + 0.1 * np.ptp(means[optimal], axis=0) + 1e-9
            # the ends of the front are worth reaching, however bad the other objective is there; but not what is worse
            # than nearly all trials, where noise makes gains that are none
            reference = np.maximum(np.quantile(means, GOOD_ENOUGH, axis=0), nadir)
            for i in self._set_by_length:  # also while most trials are short
                anywhere = self._encoding.random(np.random.default_rng(0), CANDIDATES)
                longest = np.quantile(self._objectives[i].predict(anywhere)[0], GOOD_ENOUGH)
                reference[i] = max(reference[i], longest + 0.1 * (longest - means[:, i].min()))
            front = means[: len(self._expected) + len(kept)]
            self._estimate = _FrontEstimate(rows[optimal], front, reference)
        return self._estimate

    def _best_candidate(self, rng: np.random.Generator) -> tuple[Rows, float]:
        """Return the untried configuration with the largest gain, with its fastest settings, and its gain."""
        rows = self._encoding.random(rng, CANDIDATES)
        near = rng.permutation(self._estimate_front().optimal)[:STARTS]
        for step in STEPS:
            found = np.vstack([rows, self._encoding.neighbours(rng, near, step)])
            found = np.unique(self.probe_tuner.fastest(found), axis=0)
            gains = np.where(self._are_untried(found), self.gain(found), -np.inf)
            best = np.argsort(-gains, kind="stable")[:BEAM]
            rows = near = found[best]
        return rows[0], max(0.0, float(gains[best[0]]))

    def _are_untried(self, rows: Rows) -> NDArray[np.bool_]:
        return np.array([row.tobytes() not in self._tried for row in rows], dtype=bool)


def finite(metrics: Mapping[str, float | None]) -> dict[str, float]:
    """Return the metrics that have a finite value."""
    return {name: float(value) for name, value in metrics.items() if value is not None and math.isfinite(value)}
