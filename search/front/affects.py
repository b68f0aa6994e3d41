"""Settings that cannot change a metric: the learning rate no rate, the loader no accuracy."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Literal

from search.front.roles import sounds_learned
from search.front.targets import is_duration
from trainables.contract import find_trainable

# Of a training that counts other units than `samples`: its rate, energy and windows.
BY_UNIT = re.compile(r".+_per_(second(_low|_high)?|joule)|throughput_.+")


def is_learned(trainable: str, metric: str, probed: Collection[str] = ()) -> bool:
    """Return whether the metric takes training, so that no probe measures it.

    `probed`: metrics of which the space says that a probe measures them.
    """
    if is_duration(metric):
        return True
    found = find_trainable(trainable)
    known = (found.METRICS if found else None) or {}
    if metric in probed or metric in known:
        return metric not in probed and not known[metric].probed
    if trainable.endswith(".py"):  # what the file declares
        return not BY_UNIT.fullmatch(metric)
    return sounds_learned(metric)


def without_effect(
    trainable: str, parameters: Mapping[str, Mapping[str, Any]], metric: str, probed: Collection[str] = ()
) -> set[str]:
    """Return the settings that cannot change the metric, by the `parameters` of the space or else by the trainable."""
    if is_duration(metric):
        return set()
    return without_effect_on(trainable, parameters, "trained" if is_learned(trainable, metric, probed) else "probed")


def without_effect_on(
    trainable: str, parameters: Mapping[str, Mapping[str, Any]], metrics: Literal["probed", "trained"]
) -> set[str]:
    """Return the settings that cannot change the metrics that a probe measures, or those that take training."""
    other = "trained" if metrics == "probed" else "probed"
    found = find_trainable(trainable)
    known = (found.PARAMETERS if found else None) or {}
    said = {name: stated.get("affects", stated.get("bears_on")) for name, stated in parameters.items()}  # old name
    names = {*known, *said}
    return {n for n in names if (said.get(n) or (known[n].affects if n in known else "all")) == other}
