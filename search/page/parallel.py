"""Parallel coordinates: one line per trial through its settings and its objectives."""

from __future__ import annotations

import math

from markupsafe import Markup

from search.page.chart import CROWD, metric_axis
from search.page.front_status import LINE_CLASSES, FrontStatus
from search.page.render import render
from search.page.setting_axes import range_marks, setting_axes
from search.text.metrics import ARROWS

WIDE = 6  # axes that fit a narrow screen; with more the box scrolls
MAX_SETTINGS = 9  # beside the objectives; more cannot be told apart
TOP, BOTTOM, ABSENT = 3.0, 88.0, 97.0  # percent of the height: both ends of an axis, and trials without a value


def parallel_coordinates(status: FrontStatus) -> Markup | None:
    """Render the chart; None: fewer than two trials were measured, or no setting varies."""
    run_state = status.run.state
    trials = [t for t in run_state.trials.values() if any(o.metric in t.metrics for o in run_state.objectives)]
    settings = setting_axes(run_state, trials)
    if not settings or len(trials) < 2:
        return None
    trials = status.in_line_order(trials)
    # title, marks, and the height of each trial
    axes = [(s.name, s.marks(), [_height(s.position(t)) for t in trials]) for s in settings[:MAX_SETTINGS]]
    for objective in run_state.objectives:
        values = [trial.metrics.get(objective.metric, math.nan) for trial in trials]
        along = metric_axis(status.run, objective.metric, values)
        heights = [_height(along.position(value) if math.isfinite(value) else None) for value in values]
        title = f"{run_state.label(objective.metric)} {ARROWS[objective.goal]}"
        axes.append((title, range_marks(along), heights))
    places = [100 * (i + 0.5) / len(axes) for i in range(len(axes))]
    left_out = ", ".join(setting.name for setting in settings[MAX_SETTINGS:])
    return render(
        "parallel.html",
        note=f"Not drawn: {left_out}." if left_out else "",
        label=f"{len(trials)} trials through {len(axes)} axes",
        classes=" ".join(["parallel", *["wide"] * (len(axes) > WIDE), *["crowded"] * (len(trials) > CROWD)]),
        paths=[
            status.line(trial, zip(places, [heights[i] for _, _, heights in axes], strict=True))
            for i, trial in enumerate(trials)
        ],
        uprights=[
            {
                "title": title,
                "x": place,
                "marks": [(label, _height(at)) for label, at in marks] + [("none", ABSENT)] * (ABSENT in heights),
            }
            for (title, marks, heights), place in zip(axes, places, strict=True)
        ],
        top=TOP,
        bottom=BOTTOM,
        legend=LINE_CLASSES,
    )


def _height(position: float | None) -> float:
    """Percent of the chart, from its top."""
    return ABSENT if position is None else BOTTOM + (TOP - BOTTOM) * position / 100
