"""Learning curves: the first objective that changes during training, by epoch and by time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from markupsafe import Markup

from search.front.objective import Objective
from search.page.axes import axis, thinned
from search.page.chart import CROWD, metric_axis, metric_title
from search.page.front_status import LINE_CLASSES, FrontStatus
from search.page.render import render
from search.record.trial import Trial

MAX_POINTS = 16_000  # in all curves of one chart, so that the file stays small and a browser draws it at once
MIN_POINTS = 6  # in one curve
EPOCHS = "epochs"
MAX_SECONDS = 900  # of the longest trial, up to which the axis is in seconds; above, in minutes


def learning_curves(status: FrontStatus) -> Markup | None:
    """Render the curves by epoch and by time; None: no objective has different values after different epochs."""
    run_state = status.run.state
    trials = list(run_state.trials.values())
    changing = (o for o in run_state.objectives if any(len(set(_values(t, o.metric).values())) > 1 for t in trials))
    if (objective := next(changing, None)) is None:
        return None
    trials = status.in_line_order(t for t in trials if len(_values(t, objective.metric)) > 1)
    longest = max((t.seconds for t in trials if math.isfinite(t.seconds)), default=0.0)
    unit, seconds = ("seconds", 1.0) if longest <= MAX_SECONDS else ("minutes", 60.0)
    charts = [
        _chart(status, objective, trials, lambda trial, epoch: float(epoch), EPOCHS),
        _chart(status, objective, trials, lambda t, e: _seconds(t, e) / seconds, f"{unit} on the workers"),
    ]
    return render("curves.html", charts=charts, legend=LINE_CLASSES)


def _values(trial: Trial, metric: str) -> dict[int, float]:
    values = {epoch: trial.curve[epoch].metrics.get(metric, math.nan) for epoch in sorted(trial.curve)}
    return {epoch: value for epoch, value in values.items() if math.isfinite(value)}


def _seconds(trial: Trial, epoch: int) -> float:
    seconds = trial.curve[epoch].seconds
    return math.nan if seconds is None else float(seconds)


def _chart(
    status: FrontStatus, objective: Objective, trials: list[Trial], across: Callable[[Trial, int], float], title: str
) -> dict[str, Any]:
    run, metric = status.run, objective.metric
    most = max(MIN_POINTS, MAX_POINTS // max(len(trials), 1))
    curves = []
    for trial in trials:
        values = _values(trial, metric)
        points = [(across(trial, epoch), values[epoch]) for epoch in thinned(list(values), most)]
        curves.append((trial, [(at, value) for at, value in points if math.isfinite(at)]))
    x = axis([0.0, *(at for _, points in curves for at, _ in points)], whole=title == EPOCHS)
    y = metric_axis(run, metric, [value for _, points in curves for _, value in points])
    return {
        "title": f"{run.state.label(metric)} by {title.split()[0]}",
        "note": f"Thinned to {most} points per curve." if any(len(t.curve) > most for t in trials) else "",
        "axes": {"x": x, "y": y, "x_title": title, "y_title": metric_title(run, objective, y)},
        "label": f"learning curves by {title}",
        "class": "curves crowded" if len(trials) > CROWD else "curves",
        "paths": [
            status.line(trial, ((x.position(at), 100 - y.position(value)) for at, value in points))
            for trial, points in curves
            if points
        ],
    }
