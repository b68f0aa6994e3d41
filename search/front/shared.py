"""Metrics that trials share, because their settings differ only where they cannot change these metrics."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from search.front.affects import is_learned, without_effect_on
from search.front.intervals import Metrics, merge_independent
from search.front.roles import ENDS, is_rate, rate_metric
from search.front.targets import is_duration

NEARLY = 0.02  # of a range; values that are no further apart are nearly equal


@dataclass(frozen=True)
class SharedMetrics:
    """Metrics of one kind, and the settings that cannot change them. `learned`: they take training."""

    names: tuple[str, ...]
    without_effect: frozenset[str]
    learned: bool

    def key(self, config: Mapping[str, Any]) -> str:
        """Identify the trials that share these metrics."""
        return repr(sorted((name, value) for name, value in config.items() if name not in self.without_effect))

    def nearly(self, config: Mapping[str, Any], parameters: Mapping[str, Mapping[str, Any]]) -> str:
        """Identify trials whose settings are nearly equal: `parameters` has the ranges, `NEARLY` is a part of one."""
        return self.key({name: _rounded(value, parameters.get(name, {})) for name, value in config.items()})

    def merge(self, measurements: Sequence[Metrics]) -> dict[str, float]:
        """Return the values that hold for all trials with these measurements, with the ends of 95% intervals.

        Rates were measured independently: their mean is more precise than each, and contended ones count only where
        there are no others. Metrics of validation samples were not, because the samples are the same: their mean has an
        interval as wide as one trial's.
        """
        if len(measurements) < 2:
            return {}
        if self.learned:
            return {name: mean for learned in self.names for name, mean in _means(learned, measurements).items()}
        merged: dict[str, float] = {}
        for name in self.names:
            known = [each for each in measurements if math.isfinite(each.get(name, math.nan))]
            # whether others used the cores is not known of less than a window
            quiet = [each for each in known if not each.get("contended") and each.get("throughput_windows", 1.0)]
            merged |= merge_independent(name, quiet or known) or _means(name, quiet or known)
            if is_rate(name) and 0 < len(quiet) < len(known):
                merged["contended"] = 0.0
        return merged


def shared_metrics(
    trainable: str,
    parameters: Mapping[str, Mapping[str, Any]],
    objectives: Sequence[str],
    known: Collection[str],
    stated_probed: Collection[str] = (),
) -> tuple[SharedMetrics, SharedMetrics]:
    """Return what the trials of a run share: metrics of the `objectives`, and rates among the `known` metrics.

    `stated_probed`: metrics of which the space says that a probe measures them. The time and energy of a training
    depend on every setting and are never shared.
    """
    rates = [name for name in known if f"{name}_low" in known]
    names = [name for name in dict.fromkeys([*objectives, *rates, rate_metric(known)]) if not is_duration(name)]
    probed = tuple(name for name in names if not is_learned(trainable, name, stated_probed))
    learned = tuple(name for name in objectives if name in names and name not in probed)
    return (
        SharedMetrics(probed, frozenset(without_effect_on(trainable, parameters, "probed")), learned=False),
        SharedMetrics(learned, frozenset(without_effect_on(trainable, parameters, "trained")), learned=True),
    )


def _rounded(value: Any, stated: Mapping[str, Any]) -> Any:
    """Return the place of a value in its range, rounded; a value of no range as it is."""
    if "min" not in stated or not isinstance(value, int | float) or stated["min"] == stated["max"]:
        return value
    if isinstance(value, int) and NEARLY * abs(value) < 1:  # 3 and 4 layers
        return value
    return round(place_in_range(value, stated) / NEARLY)


def place_in_range(value: float, stated: Mapping[str, Any]) -> float:
    """Return where a value is in the range that a space file states: 0 at its lower end, 1 at its upper one."""
    low, high = stated["min"], stated["max"]
    if stated.get("log"):
        value, low, high = (math.log(end) if end > 0 else end for end in (value, low, high))
    place: float = (value - low) / (high - low)
    return place


def _means(name: str, measurements: Sequence[Metrics]) -> dict[str, float]:
    """Return the mean of a metric and of each end of its interval, over the measurements that have it."""
    means = {}
    for each in (name, *(f"{name}{end}" for end in ENDS)):
        values = [metrics[each] for metrics in measurements if math.isfinite(metrics.get(each, math.nan))]
        if values:
            means[each] = fmean(values)
    return means
