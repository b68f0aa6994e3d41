"""Parallel coordinates: a line for each trial through its settings and what came of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from search.page.axes import Axis, tick_label
from search.page.chart import figure, key, lines, metric_axis, percent
from search.page.markup import Html, joined, tag
from search.page.prose import scrolling
from search.page.settings import Setting, varied
from search.page.standing import Standings
from search.record.history import Trial
from search.text.wording import ARROWS, metric_label

CROWD = 200  # lines from which on they are drawn faintly
FEW_AXES = 6  # fit a narrow screen's box without being squeezed
MOST_SETTINGS = 9  # beside the objectives; more cannot be told apart
TOP, BOTTOM, ABSENT = 3.0, 88.0, 97.0  # of the chart's height: an axis' ends, and where trials without a value pass
CLASSES = {"front": "front", "stopped": "cut", "failed": "cut", "running": "cut"}


@dataclass(frozen=True)
class _Upright:
    """One axis."""

    title: str
    marks: list[tuple[str, float]]  # label, percent of its length from below
    percent: Callable[[Trial], float | None]


def parallel_coordinates(standings: Standings) -> Html | None:
    """None: nothing was varied, or no trial was measured."""
    history = standings.run.history
    trials = [t for t in history.trials.values() if any(o.metric in t.metrics for o in history.objectives)]
    settings = varied(history, trials)
    if not settings or len(trials) < 2:
        return None
    axes = [_of_setting(s) for s in settings[:MOST_SETTINGS]] + _of_objectives(standings, trials)
    ranked = sorted(trials, key=lambda t: ("cut", "behind", "front").index(_class(standings, t)))
    content = tag(
        "svg",
        lines(_line(standings, trial, axes) for trial in ranked),
        *(_drawn(axis, i, len(axes), any(axis.percent(t) is None for t in trials)) for i, axis in enumerate(axes)),
        role="group",
        aria_label=f"{len(trials)} trials through {len(axes)} axes",
        width="100%",
        height="100%",
    )
    left = [s.name for s in settings[MOST_SETTINGS:]]
    words = "Drag along an axis to keep what crosses it there, click it to let go."
    classes = ["parallel", *["wide"] * (len(axes) > FEW_AXES), *["crowded"] * (len(trials) > CROWD)]
    box = scrolling(tag("div", content, class_=" ".join(classes)), "parallel coordinates")
    legend = key(
        [("front", "on the front"), ("behind", "other complete trials"), ("cut", "stopped, failed or running")]
    )
    note = f"Not drawn: {', '.join(left)}." if left else ""
    return joined(figure("Settings and outcomes", box, legend, note=note), tag("p", words, class_="js note"))


def _of_setting(setting: Setting) -> _Upright:
    if setting.range is not None:
        marks = [(tick_label(tick), setting.range.percent(tick)) for tick in setting.range.ticks(5)]
    else:
        marks = [(value, 100 * (i + 0.5) / len(setting.values)) for i, value in enumerate(setting.values)]
    return _Upright(setting.name, marks, setting.percent)


def _of_objectives(standings: Standings, trials: list[Trial]) -> list[_Upright]:
    info, uprights = standings.run.info, []
    for objective in standings.run.history.objectives:
        values = [trial.metrics.get(objective.metric, math.nan) for trial in trials]
        along = metric_axis(values, info.get("metrics", {}).get(objective.metric, ""))
        marks = [(tick_label(tick), along.percent(tick)) for tick in along.ticks(5)]
        title = f"{metric_label(objective.metric, info['data'])} {ARROWS[objective.goal]}"
        uprights.append(_Upright(title, marks, _placed(along, objective.metric)))
    return uprights


def _placed(along: Axis, metric: str) -> Callable[[Trial], float | None]:
    """Where a trial stands; None: it was not measured."""

    def percent_of(trial: Trial) -> float | None:
        value = trial.metrics.get(metric, math.nan)
        return along.percent(value) if math.isfinite(value) else None

    return percent_of


def _across(i: int, number_of: int) -> float:
    return 100 * (i + 0.5) / number_of


def _height(share: float | None) -> float:
    """From above, in percent of the chart."""
    return ABSENT if share is None else BOTTOM + (TOP - BOTTOM) * share / 100


def _line(standings: Standings, trial: Trial, axes: list[_Upright]) -> Html:
    places = [(_across(i, len(axes)), _height(axis.percent(trial))) for i, axis in enumerate(axes)]
    data = "M" + "L".join(f"{x:.4g} {y:.3g}" for x, y in places)
    return tag("path", d=data, class_=_class(standings, trial), data_t=trial.trial_id)


def _class(standings: Standings, trial: Trial) -> str:
    return CLASSES.get(standings.of[trial.trial_id], "behind")


def _drawn(axis: _Upright, i: int, number_of: int, some_absent: bool) -> Html:
    """The axis, its marks, its name and, where there are such, the place of trials that have no value."""
    at = percent(_across(i, number_of))
    dy = "-0.8em" if i % 2 == 0 else "-2em"  # names are long: in two rows they have room
    marks = [
        tag("text", label, x=at, y=percent(_height(share)), dx="0.5em", dy="0.33em", class_="mark")
        for label, share in axis.marks
    ]
    return tag(
        "g",
        tag("line", x1=at, x2=at, y1=percent(TOP), y2=percent(BOTTOM)),
        *marks,
        tag("text", "none", x=at, y=percent(ABSENT), dx="0.5em", dy="0.33em", class_="mark") if some_absent else None,
        tag("text", axis.title, x=at, y="0", dy=dy, text_anchor="middle", class_="name"),
        tag("rect", x=at, y="0", width="36", height="100%", transform="translate(-18)", class_="grip"),
        tag("rect", x=at, y="0", width="12", height="0", transform="translate(-6)", class_="brush"),
        class_="upright",
    )
