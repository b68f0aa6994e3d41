"""Axes of the settings that a run varied: a place for each value, or a range of numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from search.page.axes import Axis, axis, tick_label
from search.record.run_state import RunState
from search.record.trial import Trial
from search.text.configurations import format_setting

Marks = list[tuple[str, float]]  # label, percent of the axis


@dataclass(frozen=True)
class SettingAxis:
    """Axis of one parameter that has several values in a run."""

    name: str
    values: tuple[str, ...] = ()  # formatted, in the order of the space file; empty: any number within `range`
    range: Axis | None = None

    def position(self, trial: Trial) -> float | None:
        """Percent of the axis; None: the trial has no value (`when` did not hold)."""
        value = trial.config.get(self.name)
        if value is None:
            return None
        if self.range is not None:
            return self.range.position(value)
        return 100 * (self.values.index(format_setting(value)) + 0.5) / len(self.values)

    def marks(self) -> Marks:
        """Labels with their positions."""
        if self.range is not None:
            return range_marks(self.range)
        return [(value, 100 * (i + 0.5) / len(self.values)) for i, value in enumerate(self.values)]


def range_marks(of: Axis) -> Marks:
    """Ticks of a range with their positions."""
    return [(tick_label(tick), of.position(tick)) for tick in of.ticks(5)]


def setting_axes(run_state: RunState, trials: Sequence[Trial]) -> list[SettingAxis]:
    """Return an axis for each parameter that differs between these trials."""
    parameters = run_state.info.parameters
    axes = []
    for name in run_state.varying_parameters(trials):
        stated = parameters.get(name, {})
        found = [t.config[name] for t in trials if t.config.get(name) is not None]
        if "min" in stated and all(map(_is_number, found)):
            axes.append(SettingAxis(name, range=axis(map(float, found), log=bool(stated.get("log")))))
            continue
        used = {format_setting(value) for value in found}
        order = [value for value in map(format_setting, stated.get("values", [])) if value in used]
        # mixed values: numbers first, by size
        found.sort(key=lambda v: (False, float(v), "") if _is_number(v) else (True, 0.0, str(v)))
        axes.append(SettingAxis(name, tuple(dict.fromkeys([*order, *map(format_setting, found)]))))
    return axes


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)
