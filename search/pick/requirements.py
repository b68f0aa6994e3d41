"""Requirements on a configuration, the trial that meets them best, and the probability of meeting them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist

from search.commandline import NoResultError
from search.exit_codes import InputError
from search.front.candidates import pareto_front
from search.front.intervals import HALF_95
from search.front.objective import WORDS, Constraint
from search.front.pareto import knee
from search.front.targets import is_duration
from search.record.dataframes import Run
from search.record.trial import Trial
from search.report.picks import NEAREST, Pick, best_name, no_front, picks
from search.text.numbers import join_words, plural
from trainables.setting_check import did_you_mean

ROUNDING = 1e-9  # 0.71 - 0.01 must admit 0.70


@dataclass(frozen=True)
class Requirements:
    """Constraints on metrics, how much worse than the best an objective may be, and whether the knee is asked for.

    Objectives without a requirement decide among the trials that meet all: one by its best value, several by their
    knee. Without any requirement it is the recommendation of the summary.
    """

    constraints: tuple[Constraint, ...] = ()
    within: Mapping[str, float] = field(default_factory=dict)  # by objective, in its unit
    knee: bool = False


@dataclass(frozen=True)
class _Requirement:
    """One constraint in words, and the trial that it was derived from, if any."""

    constraint: Constraint
    words: str
    reference: Trial | None = None

    def is_met(self, trial: Trial) -> bool:
        """Return whether the trial meets it; a metric that was not measured does not."""
        value = trial.metrics.get(self.constraint.metric, math.nan)
        allowed = ROUNDING * max(abs(value), abs(self.constraint.bound))
        return math.isfinite(value) and self.constraint.violation(value) <= allowed


def best(run: Run, requirements: Requirements) -> Pick:
    """Return the comparable trial that meets the requirements best, and the reason.

    Raises:
        InputError: the run has no such metric.
        NoResultError: no trial meets them; the message names the nearest.
    """
    _check(run, requirements)
    compared = run.state.candidates()
    if not compared:
        raise NoResultError(f"{run.name}: {no_front(run)}")
    wanted = _resolve(run, requirements)
    if not wanted:
        return next(pick for pick in picks(run) if pick.name == "knee")
    fit = [trial for trial in compared if all(each.is_met(trial) for each in wanted)]
    if not fit:
        raise NoResultError(_nearest(run, compared, wanted))
    front = pareto_front(fit, run.state.objectives)
    free = [o for o in run.state.objectives if o.metric not in {each.constraint.metric for each in wanted}]
    if len(free) == 1 and not requirements.knee:
        metric = free[0].metric
        rule, name = f"best {run.state.label(metric)}", best_name(metric, run.state.rate_metric)
        trial = min(front, key=lambda trial: free[0].loss(trial.metrics[metric]))
    else:
        rule, name, compromise = NEAREST, "best compromise", run.state.knee
        trial = compromise if compromise in front else front[knee(run.state.losses(front), run.state.losses(compared))]
    stated = []
    for each in wanted:
        value = each.reference and run.state.format_metric(each.reference, each.constraint.metric)
        stated.append(f"{each.words} ({value}, the best)" if value else each.words)
    which = "the only one" if len(fit) == 1 else f"{rule}, of the {len(fit)}"
    why = f"{which} of {plural(len(compared), 'trial')} with {join_words(stated)}"
    return Pick(f"{name} that meets the requirements", why, trial)


def probabilities(run: Run, trial: Trial, requirements: Requirements) -> dict[str, float]:
    """Return the probability that the trial meets each requirement, from the uncertainty of the measurements.

    Requirements on metrics whose uncertainty is unknown are left out. What is known to be luck does not count.
    """
    found = {}
    for each in _resolve(run, requirements):
        metric = each.constraint.metric
        value = trial.metrics[metric] - run.state.luck(trial, metric)
        if each.reference is None:
            deviation = (run.state.half_interval(trial, metric) or 0.0) / HALF_95
        else:
            deviation = run.state.difference(trial, each.reference, metric).deviation
            value += run.state.luck(each.reference, metric)  # the bound is lower by it
        if deviation > 0 and trial is not each.reference:
            found[each.words] = NormalDist().cdf(-each.constraint.violation(value) / deviation)
    return found


def _check(run: Run, requirements: Requirements) -> None:
    known = dict.fromkeys([*run.info.metrics, *(name for trial in run.state.trials.values() for name in trial.metrics)])
    objectives = [o.metric for o in run.state.objectives]
    for constraint in requirements.constraints:
        if constraint.metric not in known:
            names = list(dict.fromkeys([*objectives, *(each.metric for each in run.state.constraints), *known]))
            raise InputError(f'{run.name} has no metric "{constraint.metric}"{did_you_mean(constraint.metric, names)}')
    for metric in requirements.within:
        if metric not in objectives:
            raise InputError(f"--within {metric}: {_take_any_metric(run)}")


def within_of_accuracy(run: Run, fraction: float) -> dict[str, float]:
    """Return how much worse the objective that is an accuracy may be, in its unit, which may be percent.

    Raises:
        InputError: the run has none.
    """
    for objective in run.state.objectives:
        if "accuracy" in objective.metric and not is_duration(objective.metric):
            return {objective.metric: fraction if run.state.is_fraction(objective.metric) else 100 * fraction}
    raise InputError(f"--accuracy-within: {_take_any_metric(run)}")


def _take_any_metric(run: Run) -> str:
    objectives = join_words([o.metric for o in run.state.objectives])
    return f"the objectives of {run.name} are {objectives}; --at-least and --at-most take any metric"


def _resolve(run: Run, requirements: Requirements) -> list[_Requirement]:
    """Return all requirements as constraints; those relative to the best refer to the trial that is best."""
    wanted = [
        _Requirement(c, f"{run.state.label(c.metric)} {WORDS[c.operator]} {c.bound:,g}")
        for c in requirements.constraints
    ]
    for objective in run.state.objectives:
        metric = objective.metric
        if (within := requirements.within.get(metric)) is None:
            continue
        top = min(run.state.candidates(), key=lambda trial: objective.loss(trial.metrics[metric]))
        value, words = top.metrics[metric], f"{run.state.label(metric)} within {within:g} of that of {top.trial_id}"
        at_least, at_most = Constraint(metric, ">=", value - within), Constraint(metric, "<=", value + within)
        wanted.append(_Requirement(at_least if objective.goal == "maximize" else at_most, words, top))
    return wanted


def _nearest(run: Run, compared: Sequence[Trial], wanted: Sequence[_Requirement]) -> str:
    """Describe the trial with the smallest largest violation, relative to the range of the metric over all trials."""
    for metric in (each.constraint.metric for each in wanted):
        if not any(metric in trial.metrics for trial in compared):
            return f"{run.name}: no complete trial measured {metric}"

    def violation(trial: Trial, constraint: Constraint) -> float:
        """Return the violation as a fraction of the metric's range; infinity if the trial did not measure it."""
        metric = constraint.metric
        values = [t.metrics[metric] for t in compared if math.isfinite(t.metrics.get(metric, math.nan))]
        amount = constraint.violation(trial.metrics.get(metric, math.nan))
        extent = max(values) - min(values) if values else 0.0
        return amount / (extent or abs(constraint.bound) or 1.0) if math.isfinite(amount) else math.inf

    trial = min(compared, key=lambda t: max(violation(t, each.constraint) for each in wanted))
    missed = [each.constraint.metric for each in wanted if not each.is_met(trial)]
    has = [f"{run.state.label(metric)} {run.state.format_metric(trial, metric) or 'not measured'}" for metric in missed]
    others = [o.metric for o in run.state.objectives if o.metric not in missed]
    shown = ", ".join(f"{run.state.label(metric)} {run.state.format_metric(trial, metric)}" for metric in others)
    stated = join_words([each.words for each in wanted])
    text = f"none of the {plural(len(compared), 'trial')} compared has {stated}; nearest: {trial.trial_id}, "
    return text + join_words(has) + (f" ({shown})" if others else "")
