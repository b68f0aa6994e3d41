"""Which settings cannot change what a metric says: the learning rate no rate, loader processes no accuracy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainables.contract import load_trainable


def is_learned(info: Mapping[str, Any], metric: str) -> bool:
    """Whether it takes training, so that a probe does not measure it; `info`: the journal's `run` event."""
    known = load_trainable(info["trainable"]).METRICS or {}
    return not known[metric].probed if metric in known else any(word in metric for word in ("accuracy", "loss"))


def without_bearing(info: Mapping[str, Any], metric: str) -> set[str]:
    """Settings that cannot change the metric, by what the space file says of them, else by what the trainable says."""
    other = "probed" if is_learned(info, metric) else "trained"
    known = load_trainable(info["trainable"]).PARAMETERS or {}
    said = {name: stated.get("bears_on") for name, stated in info.get("space", {}).get("parameters", {}).items()}
    names = {*known, *said}
    return {n for n in names if (said.get(n) or (known[n].bears_on if n in known else "all")) == other}
