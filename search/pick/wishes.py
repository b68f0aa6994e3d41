"""What a person wishes of a configuration, and the trial that meets it best."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from search.commandline import UnmetError
from search.front.objective import Constraint
from search.front.pareto import is_pareto_optimal, knee
from search.outcome import InputError
from search.record.history import History, Trial
from search.report.front_tables import measured
from search.report.picks import BEST, NEAREST, Pick, no_front, picks
from search.results import Run
from search.space.faults import nearest
from search.text.wording import count, listed, metric_label, percent

WORDS = {">=": "at least", "<=": "at most"}
ROUNDING = 1e-9  # 0.71 - 0.01 is not to leave 0.70 out


@dataclass(frozen=True)
class Wishes:
    """Bounds on metrics, how much accuracy may be given away, and whether the knee is wanted; empty: a recommendation.

    What no wish speaks of decides among the trials that meet them: one objective by its best, several by their knee.
    """

    bounds: tuple[Constraint, ...] = ()
    accuracy_within: float | None = None
    knee: bool = False


def best(run: Run, wishes: Wishes) -> Pick:
    """The trial that meets the wishes best, of those that may be compared, and why it is that one.

    Raises:
        InputError: the run knows no such metric.
        UnmetError: no trial meets them; says how near the nearest is.
    """
    _check(run, wishes)
    compared = run.history.candidates()
    if not compared:
        raise UnmetError(f"{run.name}: {no_front(run)}")
    bounds = _bounds(run, wishes)
    fit = [trial for trial in compared if all(_meets(trial, bound) for bound in bounds)]
    if not fit:
        raise UnmetError(_nearest(run, compared, bounds))
    free = [o for o in run.history.objectives if o.metric not in {bound.metric for bound in bounds}]
    if not bounds:
        return next(pick for pick in picks(run) if pick.name == "knee")
    label = {o.metric: _label(run, o.metric) for o in free}
    if len(free) == 1 and not wishes.knee:
        metric = free[0].metric
        rule, name = f"best {label[metric]}", f"{BEST.get(metric, f'best {metric}')} that meets the wish"
        trial = min(_front(run.history, fit), key=lambda trial: free[0].loss(trial.metrics[metric]))
    else:
        rule, name = NEAREST, "best compromise that meets the wish"
        front = _front(run.history, fit)
        trial = front[knee(run.history.losses(front))]
    stated = _stated(run, wishes)
    if len(fit) == 1:
        return Pick(name, f"the only one of {count(len(compared), 'trial')} with {stated}", trial)
    return Pick(name, f"{rule}, of the {len(fit)} of {count(len(compared), 'trial')} with {stated}", trial)


def sureness(run: Run, trial: Trial, wishes: Wishes) -> list[str]:
    """For each wish, how probable it is that the trial meets it, by what is uncertain in the measurements.

    Only of metrics whose uncertainty is known.
    """
    said = []
    for bound in wishes.bounds:
        probability = _probability(trial.metrics[bound.metric], run.history.deviation(trial, bound.metric), bound)
        said += [f"{_words(run, bound)}: {percent(probability)}"] if probability is not None else []
    if wishes.accuracy_within is not None:
        metric, top = _accuracy(run), _most_accurate(run)
        label = _label(run, metric)
        deviation = 0.0 if trial is top else math.hypot(*(run.history.deviation(t, metric) for t in (trial, top)))
        bound = Constraint(metric, ">=", top.metrics[metric] - wishes.accuracy_within)
        probability = _probability(trial.metrics[metric], deviation, bound)
        if probability is not None:
            said.append(f"{label} within {wishes.accuracy_within:g} of that of {top.trial_id}: {percent(probability)}")
    return said


def _check(run: Run, wishes: Wishes) -> None:
    known = dict.fromkeys(run.info.get("metrics", {}))
    known |= dict.fromkeys(name for trial in run.history.trials.values() for name in trial.metrics)
    for bound in wishes.bounds:
        if bound.metric not in known:
            near = nearest(bound.metric, known if len(known) <= 8 else [o.metric for o in run.history.objectives])
            raise InputError(f'{run.name} has no metric "{bound.metric}"{near}')
    if wishes.accuracy_within is not None:
        _accuracy(run)


def _accuracy(run: Run) -> str:
    """The objective that is an accuracy."""
    metrics = [o.metric for o in run.history.objectives]
    for metric in metrics:
        if "accuracy" in metric:
            return metric
    raise InputError(f"--accuracy-within: {run.name} searched by {listed(metrics)}; --at-least and --at-most take any")


def _most_accurate(run: Run) -> Trial:
    metric = _accuracy(run)
    return max(run.history.candidates(), key=lambda trial: trial.metrics[metric])


def _bounds(run: Run, wishes: Wishes) -> list[Constraint]:
    bounds = list(wishes.bounds)
    if wishes.accuracy_within is not None:
        metric = _accuracy(run)
        bounds.append(Constraint(metric, ">=", _most_accurate(run).metrics[metric] - wishes.accuracy_within))
    return bounds


def _meets(trial: Trial, bound: Constraint) -> bool:
    violation = bound.violation(trial.metrics.get(bound.metric, math.nan))
    return violation <= ROUNDING * max(1.0, abs(bound.bound))  # not measured: not met


def _front(history: History, trials: Sequence[Trial]) -> list[Trial]:
    """Those that no other of them dominates, best of the first objective first."""
    table = history.losses(list(trials))
    optimal = is_pareto_optimal(table)
    return [trials[i] for i in np.lexsort(table.T[::-1]) if optimal[i]]


def _nearest(run: Run, compared: Sequence[Trial], bounds: Iterable[Constraint]) -> str:
    """None meets all bounds: the trial that is least beyond, by the range of the metric over all."""
    bounds = list(bounds)
    for bound in bounds:
        if not any(bound.metric in trial.metrics for trial in compared):
            return f"{run.name}: {bound.metric} was measured of no trial that completed"
    trial = min(compared, key=lambda t: max(_beyond(t, compared, bound) for bound in bounds))
    missed = [bound for bound in bounds if not _meets(trial, bound)]
    wanted = listed([_words(run, bound) for bound in bounds])
    others = [o.metric for o in run.history.objectives if o.metric not in {bound.metric for bound in missed}]
    has = [f"{_label(run, bound.metric)} {measured(trial, bound.metric) or 'not measured'}" for bound in missed]
    shown = ", ".join(f"{_label(run, metric)} {measured(trial, metric)}" for metric in others)
    beside = f" ({shown})" if others else ""
    among = f"none of the {count(len(compared), 'trial')} compared has"
    return f"{among} {wanted}; nearest: {trial.trial_id}, {listed(has)}{beside}"


def _beyond(trial: Trial, compared: Sequence[Trial], bound: Constraint) -> float:
    """How far beyond the bound, as a fraction of the range of the metric; infinite: not measured."""
    values = [t.metrics[bound.metric] for t in compared if math.isfinite(t.metrics.get(bound.metric, math.nan))]
    violation = bound.violation(trial.metrics.get(bound.metric, math.nan))
    extent = max(values) - min(values) if values else 0.0
    return violation / (extent or abs(bound.bound) or 1.0) if math.isfinite(violation) else math.inf


def _probability(value: float, deviation: float, bound: Constraint) -> float | None:
    """That the bound is kept; None: the deviation is not known."""
    return NormalDist().cdf(-bound.violation(value) / deviation) if deviation > 0 else None


def _stated(run: Run, wishes: Wishes) -> str:
    said = [_words(run, bound) for bound in wishes.bounds]
    if wishes.accuracy_within is not None:
        top, metric = _most_accurate(run), _accuracy(run)
        label = _label(run, metric)
        said.append(f"{label} within {wishes.accuracy_within:g} of the best, {measured(top, metric)} of {top.trial_id}")
    return listed(said)


def _words(run: Run, bound: Constraint) -> str:
    return f"{_label(run, bound.metric)} {WORDS[bound.operator]} {bound.bound:,g}"


def _label(run: Run, metric: str) -> str:
    return metric_label(metric, run.info["data"])
