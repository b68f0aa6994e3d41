"""Trials as Optuna takes them: a study made in silence, and the distribution of a setting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution


def new_study(**how: Any) -> optuna.Study:
    """Create a study as Optuna does, without the line that it logs."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        return optuna.create_study(**how)
    finally:
        optuna.logging.set_verbosity(level)


def distribution(stated: Mapping[str, Any], values: Iterable[Any]) -> BaseDistribution:
    """Return a distribution that has exactly these values; `stated`: the parameter in the space file."""
    found = list(dict.fromkeys(values))
    if "min" not in stated:
        return CategoricalDistribution(found)
    low, high, log = min(found), max(found), bool(stated.get("log"))
    return IntDistribution(low, high, log) if all(type(v) is int for v in found) else FloatDistribution(low, high, log)
