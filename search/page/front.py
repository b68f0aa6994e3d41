"""The Pareto front as a chart: every trial that has all objectives, how sure its place is, and the picks by name."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence

from search.front.objective import Objective
from search.page.axes import Axis
from search.page.chart import chart, figure, is_log, key, metric_axis, metric_title, percent
from search.page.markup import Html, joined, tag
from search.page.standing import STANDINGS, Standings, interval, stated
from search.record.history import Trial
from search.text.wording import count, listed, metric_label
from search.text.wording import percent as percent_words

RADIUS = {"front": 6, "tie": 5}
OTHER_RADIUS = 4
REACH = 2  # times the extent of the front: trials farther from it stand at the edge, or they would flatten the front
BARS_ARE = "Bars: 95% intervals; that of an accuracy is the luck of which pictures it was validated on."
AT_EDGE = "Trials far from the front stand, pale, at the edge."
BARS = ("front", "tie")  # their intervals always show; those of the others would hide the picture


def front_charts(standings: Standings) -> Html:
    """One chart for each objective after the first, against the first; a run of one objective has none."""
    first, *others = standings.run.history.objectives
    return joined(*(_front_chart(standings, other, first) for other in others))


def _front_chart(standings: Standings, across: Objective, upward: Objective) -> Html:
    run, trials = standings.run, standings.drawn()
    x, y = (_axis(standings, trials, objective) for objective in (across, upward))
    points = [_Point(standings, trial, (across, upward), (x, y)) for trial in trials]
    label = f"{upward.metric} against {across.metric}: {count(len(trials), 'trial')}"
    content = joined(
        tag("g", *_steps(standings, across, upward, x, y), class_="steps", aria_hidden="true"),
        *(point.drawn() for point in points),
        tag("g", *(point.name() for point in points if point.names), class_="names", aria_hidden="true"),
    )
    titles = metric_title(across, run.info, x), metric_title(upward, run.info, y)
    far = any(point.at_edge for point in points)
    shown = [name for name in STANDINGS if any(standings.of[t.trial_id] == name for t in trials)]
    legend = key((name, f"{STANDINGS[name]} ({_number(standings, trials, name)})") for name in shown)
    return figure(
        f"{metric_label(upward.metric, run.info['data'])} against {across.metric}",
        chart(content, x, y, titles, label, "front"),
        legend,
        note=f"{BARS_ARE}{f' {AT_EDGE}' if far else ''}",
    )


def _axis(standings: Standings, trials: Sequence[Trial], objective: Objective) -> Axis:
    """Over the front with its intervals, and over what is no farther from it than `REACH` times its extent."""
    metric = objective.metric
    unit = standings.run.info.get("metrics", {}).get(metric, "")
    values = [trial.metrics[metric] for trial in trials]
    scale: Callable[[float], float] = math.log if is_log(values, unit) else float
    near = [
        value for trial in trials if standings.of[trial.trial_id] in BARS for value in _ends(standings, trial, metric)
    ]
    if not near or min(near) == max(near):
        return metric_axis(values, unit)
    low, high = scale(min(near)), scale(max(near))
    room = REACH * (high - low)
    return metric_axis([*near, *(v for v in values if low - room <= scale(v) <= high + room)], unit)


def _ends(standings: Standings, trial: Trial, metric: str) -> list[float]:
    """The value and the ends of its interval, if that is not so wide as to dwarf all else."""
    value = trial.metrics[metric]
    ends = interval(standings.run, trial, metric) or ()
    return [value, *(end for end in ends if value / 2 < end < value * 2)]


def _number(standings: Standings, trials: Iterable[Trial], standing: str) -> str:
    return f"{sum(standings.of[t.trial_id] == standing for t in trials):,}"


def _steps(standings: Standings, across: Objective, upward: Objective, x: Axis, y: Axis) -> Iterable[Html]:
    """The edge of what the front dominates; with more than two objectives there is none to draw in a plane."""
    if len(standings.run.history.objectives) != 2:
        return
    front = sorted(standings.run.history.front(), key=lambda t: t.metrics[across.metric])
    for left, right in itertools.pairwise(front):
        corner = {o: max((left, right), key=lambda t, o=o: o.loss(t.metrics[o.metric])) for o in (across, upward)}  # type: ignore[misc]
        middle = _place(x, corner[across], across), _place(y, corner[upward], upward)
        for end in (left, right):
            at = _place(x, end, across), _place(y, end, upward)
            ends = {"x1": at[0], "y1": 100 - at[1], "x2": middle[0], "y2": 100 - middle[1]}
            yield tag("line", **{name: percent(value) for name, value in ends.items()})


def _place(of: Axis, trial: Trial, objective: Objective) -> float:
    return of.percent(trial.metrics[objective.metric])


class _Point:
    """One trial in one chart."""

    def __init__(
        self, standings: Standings, trial: Trial, objectives: tuple[Objective, Objective], axes: tuple[Axis, Axis]
    ) -> None:
        self.trial, self._standings, self._axes, self._objectives = trial, standings, axes, objectives
        self.standing = standings.of[trial.trial_id]
        self.names = standings.pick_names(trial.trial_id)
        self._x, self._y = (_place(a, trial, o) for a, o in zip(axes, objectives, strict=True))
        self.at_edge = not {self._x, self._y}.isdisjoint({0.0, 100.0})

    def drawn(self) -> Html:
        """A link to the trial's row in the table of all, so that it works with keys and without scripts."""
        classes = [self.standing, *["pick"] * bool(self.names), *["edge"] * self.at_edge]
        return tag(
            "a",
            *(self._bars() if self.standing in BARS else ()),
            self._circle(RADIUS.get(self.standing, OTHER_RADIUS), "dot"),
            href=f"#{self.trial.trial_id}",
            class_=" ".join(classes),
            data_t=self.trial.trial_id,
            aria_label=self._words(),
        )

    def name(self) -> Html:
        """What it is picked for, on the side where nothing can be: that of what would dominate it."""
        left, above = self._x > 70, self._objectives[1].goal == "maximize"
        return tag(
            "text",
            listed(self.names),
            x=percent(self._x),
            y=percent(100 - self._y),
            dx="0.2em" if left else "0.5em",
            dy="-0.9em" if above else "1.7em",
            text_anchor="end" if left else "start",
        )

    def _circle(self, radius: int, name: str) -> Html:
        return tag("circle", cx=percent(self._x), cy=percent(100 - self._y), r=str(radius), class_=name)

    def _bars(self) -> Iterable[Html]:
        run = self._standings.run
        for i, (objective, along) in enumerate(zip(self._objectives, self._axes, strict=True)):
            if (ends := interval(run, self.trial, objective.metric)) is None:
                continue
            low, high = (along.percent(end) for end in ends)
            x, y = self._x, 100 - self._y
            where = (low, high, y, y) if i == 0 else (x, x, 100 - low, 100 - high)
            yield tag(
                "line",
                class_="bar",
                **dict(zip(("x1", "x2", "y1", "y2"), map(percent, where), strict=True)),
            )

    def _words(self) -> str:
        objectives = self._standings.run.history.objectives
        values = ", ".join(f"{o.metric} {stated(self._standings.run, self.trial, o.metric)}" for o in objectives)
        odds = self._standings.odds.get(self.trial.trial_id)
        sure = f", there with a probability of {percent_words(odds)}" if odds and self.standing in BARS else ""
        return f"{self.trial.trial_id}: {values}; {STANDINGS[self.standing]}{sure}"
