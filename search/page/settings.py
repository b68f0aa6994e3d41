"""What the search varied, as axes: a setting's values side by side, or a range of numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from search.page.axes import Axis, axis
from search.record.history import History, Trial
from search.text.wording import setting


@dataclass(frozen=True)
class Setting:
    """One parameter that has several values in a run."""

    name: str
    values: tuple[str, ...] = ()  # as written for people, in order; empty: any number within `range`
    range: Axis | None = None

    def percent(self, trial: Trial) -> float | None:
        """Where the trial's value stands; None: it has none (`when` did not hold)."""
        value = trial.config.get(self.name)
        if value is None:
            return None
        if self.range is not None:
            return self.range.percent(value)
        return 100 * (self.values.index(setting(value)) + 0.5) / len(self.values)


def varied(history: History, trials: Sequence[Trial]) -> list[Setting]:
    """Of the parameters that differ between these trials."""
    return [_setting(name, history.info.get("space", {}), trials) for name in history.varying(trials)]


def _setting(name: str, space: Mapping[str, Any], trials: Sequence[Trial]) -> Setting:
    stated = space.get("parameters", {}).get(name, {})
    found = [t.config[name] for t in trials if t.config.get(name) is not None]
    if "min" in stated and all(_is_number(value) for value in found):
        return Setting(name, range=axis(map(float, found), log=bool(stated.get("log"))))
    used = {setting(value) for value in found}
    order = [setting(value) for value in stated.get("values", []) if setting(value) in used]
    return Setting(name, tuple(dict.fromkeys([*order, *(setting(value) for value in sorted(found, key=_sortable))])))


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _sortable(value: Any) -> tuple[bool, float, str]:
    """Numbers first, by size."""
    return (False, float(value), "") if _is_number(value) else (True, 0.0, str(value))
