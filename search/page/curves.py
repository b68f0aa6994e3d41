"""Learning curves: what is learned, by epoch and by time."""

from __future__ import annotations

import math
from collections.abc import Callable

from search.front.objective import Objective
from search.page.axes import axis, thinned
from search.page.chart import chart, figure, key, lines, metric_axis, metric_title, path
from search.page.markup import Html, joined, tag
from search.page.standing import Standings
from search.record.history import Trial
from search.text.wording import metric_label

MOST_POINTS = 16_000  # of all curves of a chart: what a page can hold and a browser draws at once
CROWD = 200  # curves from which on they are drawn faintly
FEWEST_POINTS = 6  # of one curve
EPOCHS = "epochs"
SHORT_RUN = 900  # seconds of a trial up to which seconds are the unit that people think in

Across = Callable[[Trial, int], float]


def learning_curves(standings: Standings) -> Html | None:
    """Charts of the first objective that takes training; None: no trial was measured after two epochs."""
    history = standings.run.history
    objective = next((o for o in history.objectives if _is_learned(standings, o)), None)
    if objective is None:
        return None
    trials = [t for t in history.trials.values() if len(_epochs(t, objective.metric)) > 1]
    longest = max((t.seconds for t in trials if math.isfinite(t.seconds)), default=0.0)
    unit, seconds = ("seconds", 1.0) if longest <= SHORT_RUN else ("minutes", 60.0)
    by_time = f"{unit} in the workers' hands"
    return joined(
        tag(
            "div",
            _chart(standings, objective, trials, lambda trial, epoch: float(epoch), EPOCHS),
            _chart(standings, objective, trials, lambda t, e: _seconds(t, e) / seconds, by_time),
            class_="pair",
        ),
        key([("front", "on the front"), ("behind", "other complete trials"), ("cut", "stopped, failed or running")]),
    )


def _is_learned(standings: Standings, objective: Objective) -> bool:
    return any(
        len(values := _epochs(t, objective.metric)) > 1
        and len({t.curve[epoch]["metrics"][objective.metric] for epoch in values}) > 1
        for t in standings.run.history.trials.values()
    )


def _epochs(trial: Trial, metric: str) -> list[int]:
    """Epochs at which the metric was measured, in order."""
    return [e for e in sorted(trial.curve) if math.isfinite(trial.curve[e]["metrics"].get(metric, math.nan))]


def _seconds(trial: Trial, epoch: int) -> float:
    seconds = trial.curve[epoch].get("seconds")
    return math.nan if seconds is None else float(seconds)


def _chart(standings: Standings, objective: Objective, trials: list[Trial], across: Across, title: str) -> Html:
    metric, info = objective.metric, standings.run.info
    most = max(FEWEST_POINTS, MOST_POINTS // max(len(trials), 1))
    points = {
        trial.trial_id: [
            (across(trial, epoch), trial.curve[epoch]["metrics"][metric])
            for epoch in thinned(_epochs(trial, metric), most)
            if math.isfinite(across(trial, epoch))
        ]
        for trial in trials
    }
    x = axis([0.0, *(at for curve in points.values() for at, _ in curve)], whole=title == EPOCHS)
    y = metric_axis([v for curve in points.values() for _, v in curve], info.get("metrics", {}).get(metric, ""))
    ranked = sorted(trials, key=lambda t: ("cut", "behind", "front").index(_class(standings, t)))
    drawn = [
        tag(
            "path",
            d=path([(x.percent(at), y.percent(value)) for at, value in points[trial.trial_id]]),
            class_=_class(standings, trial),
            data_t=trial.trial_id,
        )
        for trial in ranked
        if points[trial.trial_id]
    ]
    classes = "curves crowded" if len(trials) > CROWD else "curves"
    label = metric_label(metric, info["data"])
    note = f"Thinned to {most} points a curve." if any(len(t.curve) > most for t in trials) else ""
    return figure(
        f"{label} by {title.split()[0]}",
        chart(lines(drawn), x, y, (title, metric_title(objective, info, y)), f"learning curves by {title}", classes),
        note=note,
    )


def _class(standings: Standings, trial: Trial) -> str:
    if trial.state != "complete":
        return "cut"
    return "front" if standings.of[trial.trial_id] == "front" else "behind"
