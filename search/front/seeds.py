"""Spread of metrics between random seeds: what is known of it, and metrics that several seeds have measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from statistics import fmean, median
from typing import Literal

from search.front.intervals import HALF_95, Metrics, half_interval
from trainables.student_t import student_t

PRIOR_SEEDS = 2.0  # degrees of freedom that a guess of the spread counts for
CONTRADICTED = 4.0  # ratio of what was found to the guess, from which on the guess does not count
MOST_ALIKE = 20  # trials of a group
MEDIAN_GAP = 0.9539  # median of the absolute difference of two standard normal variables


def spread_of(
    metric: str,
    goal: Literal["maximize", "minimize"],
    again: Sequence[Sequence[Metrics]],
    alike: Sequence[Sequence[Metrics]],
) -> float | None:
    """Return the variance of a metric between seeds; None: nothing tells of it.

    `again`: configurations that were trained with several seeds, which decide. `alike`: trials of nearly equal
    settings, which tell of it where none was. Few measurements say little. Until they are more, the variance by the
    choice of validation samples stands in for it, in the manner of a scaled inverse chi-squared prior: both are of the
    same size in many trainings; not where what was found is much larger. The variance is larger than its estimate, so
    that 1.96 standard deviations are half of a 95% interval, as Student's t has it.
    """
    by_seeds = [values for each in again if len(values := _values(metric, each)) > 1]
    freedom = float(sum(len(values) - 1 for values in by_seeds))
    squares = math.fsum((value - fmean(values)) ** 2 for values in by_seeds for value in values)
    guess = _guess(metric, [*again, *alike])
    if not freedom:
        sign = -1.0 if goal == "maximize" else 1.0
        gaps, freedom = _gaps([[sign * value for value in _values(metric, each)] for each in alike])
        if not gaps:
            return None
        squares = freedom * (median(gaps) / MEDIAN_GAP) ** 2
    if guess is not None and squares / freedom < CONTRADICTED * guess:
        squares, freedom = squares + PRIOR_SEEDS * guess, freedom + PRIOR_SEEDS
    return squares / freedom * (student_t(freedom) / HALF_95) ** 2


def _values(metric: str, measurements: Sequence[Metrics]) -> list[float]:
    return [metrics[metric] for metrics in measurements if math.isfinite(metrics.get(metric, math.nan))]


def _guess(metric: str, trained: Sequence[Sequence[Metrics]]) -> float | None:
    """Return the mean variance by the choice of validation samples; None: not known."""
    halves = (half_interval(metrics, metric) for measurements in trained for metrics in measurements)
    known = [half**2 / HALF_95**2 for half in halves if half]
    return fmean(known) if known else None


def _gaps(groups: Sequence[Sequence[float]]) -> tuple[list[float], float]:
    """Return the differences of losses within groups of nearly equal settings, and their degrees of freedom.

    Groups that are worse than most trials do not count: where nothing is learned, seeds hardly differ. Of a group, the
    median of these differences does not depend on one trial that diverged, which tells of its settings.
    """
    losses = [loss for group in groups for loss in group]
    limit = median(losses) if losses else 0.0
    better = [group[-MOST_ALIKE:] for group in groups if len(group) > 1 and median(group) <= limit]
    gaps = [abs(one - other) for group in better for one, other in combinations(group, 2)]
    return gaps, float(sum(len(group) - 1 for group in better))


def over_seeds(measurements: Sequence[Metrics], variances: Mapping[str, float]) -> dict[str, float]:
    """Return the means of metrics over seeds, and their 95% intervals over validation samples and seeds.

    `variances`: between seeds, by metric; a metric without one is left out. More seeds do not shrink the part of the
    interval that comes from the validation samples, because all seeds have the same ones.
    """
    found: dict[str, float] = {}
    for name, variance in variances.items():
        values = [metrics[name] for metrics in measurements if math.isfinite(metrics.get(name, math.nan))]
        if values:
            mean, by_samples = fmean(values), half_interval(measurements[0], name) or 0.0
            half = math.hypot(by_samples, HALF_95 * math.sqrt(variance / len(values)))
            found |= {name: mean, f"{name}_low": mean - half, f"{name}_high": mean + half}
    return found
