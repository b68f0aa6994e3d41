"""Charts of the Pareto front: all trials that have every objective, intervals of the best, and the picks by name."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

from markupsafe import Markup

from search.front.objective import Objective
from search.page.axes import Axis
from search.page.chart import is_log, metric_axis, metric_title
from search.page.front_status import STATUSES, FrontStatus
from search.page.render import render
from search.record.trial import Trial
from search.text.numbers import format_probability, plural

RADIUS = {"front": 6, "tie": 5}
OTHER_RADIUS = 4
NEAR_X, NEAR_Y = 25, 6  # percent of the chart, within which names would cover each other
REACH = 2  # extents of the front: trials farther from it are drawn at the edge, or they would flatten the front
INTERVALS = "Bars: 95% intervals; of a validation metric, the sampling error of its samples{}."
AT_EDGE = "Trials far from the front are drawn, pale, at the edge."
WITH_BARS = ("front", "tie")  # statuses whose intervals are shown; those of all trials would cover the chart

Line = tuple[float, float, float, float]  # x1, y1, x2, y2 in percent from the top left corner


def front_charts(status: FrontStatus) -> Markup:
    """Render one chart for each objective after the first, against the first; a run of one objective has none."""
    upward, *others = status.run.state.objectives
    return Markup("").join(_chart(status, across, upward) for across in others)


def _chart(status: FrontStatus, across: Objective, upward: Objective) -> Markup:
    run, trials = status.run, status.trials_to_draw()
    x, y = (_axis(status, trials, objective) for objective in (across, upward))
    axes = {across: x, upward: y}
    points = [_point(status, trial, axes) for trial in trials]
    far = any("edge" in point["css_class"] for point in points)
    totals = Counter(status.of[t.trial_id] for t in trials)
    steps: list[Line] = []  # boundary of the area that the front dominates; three objectives have none in a plane
    if len(run.state.objectives) == 2:
        for left, right in itertools.pairwise(sorted(run.state.front(), key=lambda t: t.metrics[across.metric])):
            worse = {o.metric: o.loss(max(o.loss(t.metrics[o.metric]) for t in (left, right))) for o in axes}
            steps += [(*_place(axes, end.metrics), *_place(axes, worse)) for end in (left, right)]
    names_above = upward.goal == "maximize"  # the side where no point can be: that of the dominating values
    _stack_names(points, names_above)
    intervals = INTERVALS.format(" and the variation between seeds" * run.state.knows_seeds)
    return render(
        "front.html",
        title=f"{run.state.label(upward.metric)} against {across.metric}",
        note=f"{intervals} {AT_EDGE}" if far else intervals,
        axes={"x": x, "y": y, "x_title": metric_title(run, across, x), "y_title": metric_title(run, upward, y)},
        label=f"{upward.metric} against {across.metric}: {plural(len(trials), 'trial')}",
        steps=steps,
        points=points,
        names_above=names_above,
        legend={name: f"{words} ({totals[name]:,})" for name, words in STATUSES.items() if totals[name]},
    )


def _stack_names(points: list[dict[str, Any]], above: bool) -> None:
    """Give each name a line above or below its point, counted from 0, so that names of near points can be read."""
    placed, outwards = list[dict[str, Any]](), -1 if above else 1  # y counts from the top
    for point in sorted((point for point in points if point["names"]), key=lambda point: outwards * point["y"]):
        near = [o["line"] for o in placed if abs(o["x"] - point["x"]) < NEAR_X and abs(o["y"] - point["y"]) < NEAR_Y]
        point["line"] = max(near, default=-1) + 1
        placed.append(point)


def _axis(status: FrontStatus, trials: list[Trial], objective: Objective) -> Axis:
    """Axis over the front with its intervals, and over the trials within `REACH` times its extent."""
    run, metric = status.run, objective.metric
    values = [trial.metrics[metric] for trial in trials]
    scale: Callable[[float], float] = math.log if is_log(run, metric, values) else float
    near = []
    for trial in trials:
        if status.of[trial.trial_id] in WITH_BARS:
            value = trial.metrics[metric]
            ends = status.interval(trial, metric) or ()
            least, most = sorted((value / 2, value * 2))
            near += [value, *(end for end in ends if least < end < most)]  # a wider one would dwarf all else
    if not near or min(near) == max(near):
        return metric_axis(run, metric, values)
    low, high = scale(min(near)), scale(max(near))
    room = REACH * (high - low)
    return metric_axis(run, metric, [*near, *(v for v in values if low - room <= scale(v) <= high + room)])


def _place(axes: dict[Objective, Axis], metrics: dict[str, float]) -> tuple[float, float]:
    x, y = (axis.position(metrics[objective.metric]) for objective, axis in axes.items())
    return x, 100 - y


def _point(status: FrontStatus, trial: Trial, axes: dict[Objective, Axis]) -> dict[str, Any]:
    """Return the template's values of one trial; coordinates in percent from the top left corner."""
    name, names = status.of[trial.trial_id], status.pick_names(trial)
    x, y = _place(axes, trial.metrics)
    classes = [name, *["pick"] * bool(names), *["edge"] * (not {x, y}.isdisjoint({0.0, 100.0}))]
    run_state = status.run.state
    values = ", ".join(f"{o.metric} {run_state.format_metric(trial, o.metric)}" for o in run_state.objectives)
    label, bars = f"{trial.trial_id}: {values}; {STATUSES[name]}", list[Line]()
    if name in WITH_BARS:
        for i, (objective, along) in enumerate(axes.items()):
            if ends := status.interval(trial, objective.metric):
                low, high = map(along.position, ends)
                bars.append((x, 100 - low, x, 100 - high) if i else (low, y, high, y))
        if probability := status.run.front_probabilities.get(trial.trial_id):
            label += f", with a probability of {format_probability(probability)}"
    return {
        "trial_id": trial.trial_id,
        "css_class": " ".join(classes),
        "x": x,
        "y": y,
        "radius": RADIUS.get(name, OTHER_RADIUS),
        "label": label,  # for screen readers
        "names": names,  # of its picks
        "bars": bars,
    }
