"""A rate that was measured several times: one figure with one interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

Metrics = Mapping[str, float]


def merged(first: Metrics, repeats: Sequence[Metrics]) -> dict[str, float]:
    """The metrics of a trial, those with a 95% interval (`_low`, `_high`) merged with what repeats of it measured.

    Means are weighted by precision. Where the repeats differ by more than their intervals say, the merged interval is
    wider by that factor, as the Particle Data Group does it (Review of Particle Physics, section 5.2.2).
    """
    found = dict(first)
    for name in [name.removesuffix("_low") for name in first if name.endswith("_low")]:
        measured = [known for metrics in (first, *repeats) if (known := _interval(metrics, name)) is not None]
        if len(measured) > 1:
            value, half = _mean(measured)
            found |= {name: value, f"{name}_low": value - half, f"{name}_high": value + half}
    return found


def _interval(metrics: Metrics, name: str) -> tuple[float, float] | None:
    """The value and half of its interval; None: not measured."""
    value = metrics.get(name, math.nan)
    half = (metrics.get(f"{name}_high", math.nan) - metrics.get(f"{name}_low", math.nan)) / 2
    return (value, half) if math.isfinite(value) and half > 0 else None


def _mean(measured: Sequence[tuple[float, float]]) -> tuple[float, float]:
    weights = [1 / half**2 for _, half in measured]
    mean = sum(weight * value for weight, (value, _) in zip(weights, measured, strict=True)) / sum(weights)
    deviations = [(value - mean) / (half / 1.96) for value, half in measured]
    scatter = sum(d * d for d in deviations) / (len(measured) - 1)
    return mean, math.sqrt(max(1.0, scatter) / sum(weights))
