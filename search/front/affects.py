"""Settings that cannot change a metric: the learning rate no rate, the loader no accuracy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainables.contract import load_trainable


def is_learned(trainable: str, metric: str) -> bool:
    """Return whether the metric takes training, so that no probe measures it."""
    known = load_trainable(trainable).METRICS or {}
    return not known[metric].probed if metric in known else any(word in metric for word in ("accuracy", "loss"))


def without_effect(trainable: str, parameters: Mapping[str, Mapping[str, Any]], metric: str) -> set[str]:
    """Return the settings that cannot change the metric, by the `parameters` of the space or else by the trainable."""
    other = "probed" if is_learned(trainable, metric) else "trained"
    known = load_trainable(trainable).PARAMETERS or {}
    said = {name: stated.get("affects", stated.get("bears_on")) for name, stated in parameters.items()}  # old name
    names = {*known, *said}
    return {n for n in names if (said.get(n) or (known[n].affects if n in known else "all")) == other}
