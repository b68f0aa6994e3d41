"""Spread of metrics between random seeds: what is known of it, and metrics that several seeds have measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Literal

from search.front.intervals import HALF_95, Metrics, half_interval

PRIOR_SEEDS = 2.0  # degrees of freedom that the choice of validation samples counts for, as a guess of the spread


def seed_variance(metric: str, trained: Sequence[Sequence[Metrics]]) -> float | None:
    """Return the variance of a metric between seeds; None: no configuration was trained with several.

    Few seeds say little about it. Until they are more, the variance by the choice of validation samples stands in for
    it, in the manner of a scaled inverse chi-squared prior: both are of the same size in many trainings.
    """
    squares = freedom = 0.0
    priors = []
    for measurements in trained:
        values = [metrics[metric] for metrics in measurements if math.isfinite(metrics.get(metric, math.nan))]
        if len(values) < 2:
            continue
        mean = fmean(values)
        squares += math.fsum((value - mean) ** 2 for value in values)
        freedom += len(values) - 1
        priors += [half**2 / HALF_95**2 for each in measurements if (half := half_interval(each, metric))]
    if not freedom:
        return None
    prior = PRIOR_SEEDS if priors else 0.0
    return (prior * (fmean(priors) if priors else 0.0) + squares) / (prior + freedom)


def spread_of(
    metric: str,
    goal: Literal["maximize", "minimize"],
    again: Sequence[Sequence[Metrics]],
    alike: Sequence[Sequence[Metrics]],
) -> float | None:
    """Return the variance of a metric between seeds; None: nothing tells of it.

    `again`: configurations that were trained with several seeds; `alike`: trials of nearly equal settings. Of the
    latter only the better half counts, because one that diverged tells of its settings, and as an upper bound: their
    settings differ, too.
    """
    known = [m for some in alike for m in some if len(some) > 1 and math.isfinite(m.get(metric, math.nan))]
    better: list[list[Metrics]] = []
    if known:
        sign = -1.0 if goal == "maximize" else 1.0
        limit = median(sign * metrics[metric] for metrics in known)
        better = [[m for m in some if m in known and sign * m[metric] <= limit] for some in alike]
    found = [variance for trained in (again, better) if (variance := seed_variance(metric, trained)) is not None]
    return min(found, default=None)


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
