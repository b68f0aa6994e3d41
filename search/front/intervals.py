"""95% intervals: half of one in the metric's unit, and the interval of a rate that was measured several times."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import stdev

from search.front.roles import is_rate
from trainables.student_t import student_t

HALF_95 = 1.96  # standard deviations in half of a 95% interval
MIN_SCATTERED = 3  # measurements that show how much they differ
# standard error of the logarithm of a rate without an interval, as single measurements differ on a shared machine
UNKNOWN_DEVIATION = 0.15
IMPRECISE = 3.0  # times √n the interval of the mean: a measurement with a wider one does not tell of the scatter of n

Metrics = Mapping[str, float]


def half_interval(metrics: Metrics, metric: str, val_images: int | None = None) -> float | None:
    """Half of the 95% interval of a metric, in its unit; None: not known, or the value is exact.

    A rate and a mean over validation samples have the ends that were measured (`_low`, `_high`). In early runs a rate
    has a standard deviation, `_std`, and a validation accuracy a binomial interval over the `val_images`.
    """
    value, low, high = (metrics.get(f"{metric}{end}", math.nan) for end in ("", "_low", "_high"))
    if math.isfinite(high - low):
        half = (high - low) / 2
    elif metric == "val_accuracy" and val_images:
        half = HALF_95 * math.sqrt(max(0.0, value * (1 - value)) / val_images)
    else:
        half = metrics.get(f"{metric}_std", math.nan)
    return half if math.isfinite(half) and half > 0 else None


def least_value(metric: str) -> float:
    """Smallest value that a metric can have, and the lower end of its interval with it: a rate is not below zero."""
    return 0.0 if is_rate(metric) else -math.inf


def interval(metrics: Metrics, metric: str, half: float) -> tuple[float, float]:
    """Ends of the 95% interval of a metric: those that were measured, or `half` of the interval on each side."""
    ends = [metrics.get(f"{metric}{end}", math.nan) for end in ("_low", "_high")]
    low, high = ends if all(map(math.isfinite, ends)) else (metrics[metric] - half, metrics[metric] + half)
    return max(low, least_value(metric)), high


def relative_deviation(metrics: Metrics, metric: str) -> float:
    """Standard error of the logarithm of a metric, which is that of the metric as a part of its value; 0: not known."""
    half = half_interval(metrics, metric)
    if not half or metrics[metric] <= 0:
        return 0.0
    low, high = (metrics.get(f"{metric}{end}", math.nan) for end in ("_low", "_high"))
    return math.log(high / low) / 2 / HALF_95 if low > 0 else half / HALF_95 / metrics[metric]


def merge_repeats(first: Metrics, repeats: Sequence[Metrics]) -> dict[str, float]:
    """The metrics of a trial, those with a 95% interval (`_low`, `_high`) merged with what repeats of it measured."""
    merged, measurements = dict(first), (first, *repeats)
    ends = dict.fromkeys(name for each in measurements for name in each if name.endswith("_low"))
    for name in (end.removesuffix("_low") for end in ends):
        if name in first:
            merged |= merge_independent(name, measurements)
    return merged


def merge_independent(name: str, measurements: Iterable[Metrics]) -> dict[str, float]:
    """The mean of a metric over independent measurements, with its 95% interval; empty where no interval is known.

    Means are weighted by precision, of rates those of their logarithms: the interval of a rate grows with it, so that
    the lower ones would have the larger weights. A rate without an interval of its own counts as known to
    `UNKNOWN_DEVIATION`, beside one with an interval or from `MIN_SCATTERED` measurements on. Other metrics without an
    interval have that of their scatter, from `MIN_SCATTERED` of them on; fewer do not count beside others. Two alone
    have an interval as if their standard deviation were exact: Student's t would make it 6 times wider. Where
    measurements differ by more than their intervals allow, the merged interval is wider by that factor, for which very
    imprecise ones do not count, as the Particle Data Group does it (Review of Particle Physics, section 5.2.2).
    """
    values = [
        (metrics[name], half_interval(metrics, name))
        for metrics in measurements
        if math.isfinite(metrics.get(name, math.nan))
    ]
    unknown = [value for value, half in values if half is None]
    if is_rate(name) and (len(unknown) < len(values) or len(unknown) >= MIN_SCATTERED):
        values = [(value, half or HALF_95 * UNKNOWN_DEVIATION * abs(value)) for value, half in values]
    elif len(unknown) >= MIN_SCATTERED or len(unknown) == len(values) == 2:
        half_of_scattered = (student_t(len(unknown) - 1) if len(unknown) > 2 else HALF_95) * stdev(unknown)
        values = [(value, half or half_of_scattered) for value, half in values]
    measured = [(value, half) for value, half in values if half]
    if not measured:
        return {}
    in_logarithms = is_rate(name) and all(value > 0 for value, _ in measured)
    if in_logarithms:
        measured = [(math.log(value), math.asinh(half / value)) for value, half in measured]
    weights = [1 / half**2 for _, half in measured]
    mean = sum(weight * value for weight, (value, _) in zip(weights, measured, strict=True)) / sum(weights)
    half = 1 / math.sqrt(sum(weights))
    compared = [each for each in measured if each[1] <= IMPRECISE * math.sqrt(len(measured)) * half]
    scatter = sum(((value - mean) / (half / HALF_95)) ** 2 for value, half in compared) / max(1, len(compared) - 1)
    half *= math.sqrt(max(1.0, scatter))
    merged = {name: mean, f"{name}_low": mean - half, f"{name}_high": mean + half}
    return {end: math.exp(value) for end, value in merged.items()} if in_logarithms else merged
