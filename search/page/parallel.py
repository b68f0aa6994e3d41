"""Parallel coordinates: one line per trial through its settings and its objectives."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from markupsafe import Markup

from search.front.objective import Objective
from search.page.chart import CROWD, metric_axis, unit_of
from search.page.front_status import LINE_CLASSES, FrontStatus
from search.page.render import render
from search.page.setting_axes import Marks, range_marks, setting_axes
from search.record.run_state import Trial
from search.text.metrics import ARROWS, metric_label

WIDE = 6  # axes that fit a narrow screen; with more the box scrolls
MAX_SETTINGS = 9  # beside the objectives; more cannot be told apart
TOP, BOTTOM, ABSENT = 3.0, 88.0, 97.0  # percent of the height: both ends of an axis, and trials without a value


@dataclass(frozen=True)
class Upright:
    """One axis. `position`: percent of its length from its low end; None: the trial has no value."""

    title: str
    marks: Marks
    position: Callable[[Trial], float | None]


def parallel_coordinates(status: FrontStatus) -> Markup | None:
    """Render the chart; None: fewer than two trials were measured, or no setting varies."""
    run_state = status.run.state
    trials = [t for t in run_state.trials.values() if any(o.metric in t.metrics for o in run_state.objectives)]
    settings = setting_axes(run_state, trials)
    if not settings or len(trials) < 2:
        return None
    axes = [Upright(setting.name, setting.marks(), setting.position) for setting in settings[:MAX_SETTINGS]]
    axes += [_of_objective(status, objective, trials) for objective in run_state.objectives]
    places = [100 * (i + 0.5) / len(axes) for i in range(len(axes))]
    left_out = ", ".join(setting.name for setting in settings[MAX_SETTINGS:])
    return render(
        "parallel.html",
        note=f"Not drawn: {left_out}." if left_out else "",
        label=f"{len(trials)} trials through {len(axes)} axes",
        classes=" ".join(["parallel", *["wide"] * (len(axes) > WIDE), *["crowded"] * (len(trials) > CROWD)]),
        paths=[
            status.line(trial, zip(places, [_height(axis.position(trial)) for axis in axes], strict=True))
            for trial in status.in_line_order(trials)
        ],
        uprights=[
            {
                "title": axis.title,
                "x": place,
                "marks": [(label, _height(at)) for label, at in axis.marks]
                + [("none", ABSENT)] * any(axis.position(trial) is None for trial in trials),
            }
            for axis, place in zip(axes, places, strict=True)
        ],
        top=TOP,
        bottom=BOTTOM,
        legend=LINE_CLASSES,
    )


def _of_objective(status: FrontStatus, objective: Objective, trials: list[Trial]) -> Upright:
    metric = objective.metric
    along = metric_axis([trial.metrics.get(metric, math.nan) for trial in trials], unit_of(status.run, metric))
    title = f"{metric_label(metric, status.run.info.data.name)} {ARROWS[objective.goal]}"

    def position(trial: Trial) -> float | None:
        value = trial.metrics.get(metric, math.nan)
        return along.position(value) if math.isfinite(value) else None

    return Upright(title, range_marks(along), position)


def _height(position: float | None) -> float:
    """Percent of the chart, from its top."""
    return ABSENT if position is None else BOTTOM + (TOP - BOTTOM) * position / 100
