"""Spread of metrics between random seeds: what is known of it, and metrics that several seeds have measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import combinations
from statistics import fmean, median
from typing import Literal

from search.front.intervals import HALF_95, Metrics, half_interval
from trainables.student_t import student_t

PRIOR_SEEDS = 2.0  # degrees of freedom that a guess of the spread counts for
CONTRADICTED = 4.0  # ratio of what several seeds say to the guess, from which on the guess counts less
MOST_ALIKE = 20  # trials of a group
LEAST_FRACTION = 0.005  # nearer to 0 or 1 fractions count as this far
MEDIAN_GAP = 0.9539  # median of the absolute difference of two standard normal variables


class Scale(Enum):
    """Scale on which seeds change all values of a metric about equally."""

    PLAIN = "plain"
    LOG = "log"  # of losses, which differ by factors
    LOGIT = "logit"  # of accuracies and other fractions, which differ the less the nearer they are to 0 or 1

    def of(self, value: float) -> float:
        """Return the value on the scale."""
        match self:
            case Scale.PLAIN:
                return value
            case Scale.LOG:
                return math.log(value)
            case Scale.LOGIT:
                return math.log(_inside(value) / (1 - _inside(value)))

    def width(self, value: float) -> float:
        """Return the width at this value of one unit of the scale."""
        match self:
            case Scale.PLAIN:
                return 1.0
            case Scale.LOG:
                return abs(value)
            case Scale.LOGIT:
                return _inside(value) * (1 - _inside(value))


def _inside(fraction: float) -> float:
    return min(max(fraction, LEAST_FRACTION), 1 - LEAST_FRACTION)


@dataclass(frozen=True)
class Spread:
    """Variance of a metric between seeds, on a scale."""

    variance: float
    scale: Scale = Scale.PLAIN

    def deviation(self, value: float, seeds: int = 1) -> float:
        """Return the standard deviation of a mean of about this value over so many seeds."""
        return math.sqrt(self.variance / seeds) * self.scale.width(value)


def spread_of(
    metric: str,
    goal: Literal["maximize", "minimize"],
    again: Sequence[Sequence[Metrics]],
    alike: Sequence[Sequence[Metrics]],
) -> Spread | None:
    """Return the spread of a metric between seeds; None: nothing tells of it.

    `again`: configurations that were trained with several seeds, which decide. `alike`: trials of nearly equal
    settings, which tell of it where none was. Few measurements say little. Until they are more, the variance by the
    choice of validation samples stands in for it, in the manner of a scaled inverse chi-squared prior: both are of the
    same size in many trainings. Where several seeds say much more, it counts less, but two pairs of seeds then still
    tell more than two numbers do. The variance is larger than its estimate, so that 1.96 standard deviations are half
    of a 95% interval, as Student's t has it.
    """
    scale = _scale([value for each in (*again, *alike) for value in _values(metric, each)], goal)
    by_seeds = [values for each in again if len(values := _values(metric, each, scale)) > 1]
    freedom = float(sum(len(values) - 1 for values in by_seeds))
    squares = math.fsum((value - fmean(values)) ** 2 for values in by_seeds for value in values)
    guess, prior = _guess(metric, [*again, *alike], scale), PRIOR_SEEDS
    if not freedom:
        sign = -1.0 if goal == "maximize" else 1.0
        gaps, freedom = _gaps([[sign * value for value in _values(metric, each, scale)] for each in alike])
        if not gaps:
            return None
        squares = freedom * (median(gaps) / MEDIAN_GAP) ** 2
    elif guess and squares:
        prior *= min(1.0, CONTRADICTED * guess / (squares / freedom))
    degrees = freedom  # of Student's t
    if guess is not None:
        squares, freedom, degrees = squares + prior * guess, freedom + prior, freedom + PRIOR_SEEDS
    return Spread(squares / freedom * (student_t(degrees) / HALF_95) ** 2, scale)


def _scale(values: Sequence[float], goal: str) -> Scale:
    if goal == "minimize":
        return Scale.LOG if min(values, default=0.0) > 0 else Scale.PLAIN
    return Scale.LOGIT if all(0 <= value <= 1 for value in values) else Scale.PLAIN


def _values(metric: str, measurements: Sequence[Metrics], scale: Scale = Scale.PLAIN) -> list[float]:
    values = [metrics[metric] for metrics in measurements if math.isfinite(metrics.get(metric, math.nan))]
    return [scale.of(value) for value in values]


def _guess(metric: str, trained: Sequence[Sequence[Metrics]], scale: Scale) -> float | None:
    """Return the mean variance by the choice of validation samples; None: not known."""
    every = [metrics for measurements in trained for metrics in measurements]
    halves = [(half, metrics[metric]) for metrics in every if (half := half_interval(metrics, metric))]
    known = [(half / scale.width(value) / HALF_95) ** 2 for half, value in halves]
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


def over_seeds(measurements: Sequence[Metrics], spreads: Mapping[str, Spread]) -> dict[str, float]:
    """Return the means of metrics over seeds, and their 95% intervals over validation samples and seeds.

    `spreads`: between seeds, by metric; a metric without one is left out. More seeds do not shrink the part of the
    interval that comes from the validation samples, because all seeds have the same ones.
    """
    found: dict[str, float] = {}
    for name, spread in spreads.items():
        values = [metrics[name] for metrics in measurements if math.isfinite(metrics.get(name, math.nan))]
        if values:
            mean, by_samples = fmean(values), half_interval(measurements[0], name) or 0.0
            half = math.hypot(by_samples, HALF_95 * spread.deviation(mean, len(values)))
            found |= {name: mean, f"{name}_low": mean - half, f"{name}_high": mean + half}
    return found
