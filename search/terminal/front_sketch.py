"""A run's trials as a sketch: the front, what it dominates, and what runs now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from search.front.objective import Objective, measured
from search.record.history import History, Trial
from search.text.sketch import DOT, PLAIN_DOT, Axis, Point, sketch
from search.text.wording import ARROWS, metric_label


@dataclass(frozen=True)
class Marks:
    """The letters for points of the front, for what runs now, in the legend for all others, and of a bar."""

    front: str = "●"
    now: str = "◆"
    other: str = DOT
    done: str = "━"
    to_do: str = "─"


ASCII_MARKS = Marks("*", "@", PLAIN_DOT, "=", "-")


@dataclass(frozen=True)
class FrontSketch:
    """Lines of the sketch, none where there is nothing to draw, and how many trials are outside its frame."""

    lines: list[str]
    outside: int = 0

    def legend(self, marks: Marks) -> str:
        """What the letters mean."""
        outside = f" ({self.outside} outside)" if self.outside else ""
        return f"{marks.front} front  {marks.now} now  {marks.other} other{outside}"


def front_sketch(history: History, width: int, height: int, marks: Marks) -> FrontSketch:
    """The second objective to the right, the first one upwards.

    The frame is around the front, and as much again on each side where there is something: what is far worse would
    push the front into a corner. What runs beyond it is drawn at its edge, towards which it is.
    """
    if len(history.objectives) < 2:
        return FrontSketch([])
    up, right = history.objectives[:2]
    trials = [trial for trial in history.counted() if measured(trial.metrics, (up, right))]
    if not trials:
        return FrontSketch([])
    front = history.front()
    x, y = (_axis(history, objective, front, trials) for objective in (right, up))
    running = [trial for trial in trials if trial.state == "running"]
    ended = [trial for trial in trials if trial.state != "running"]
    inside = [trial for trial in ended if _within(trial, right, x) and _within(trial, up, y)]
    points = [Point(t.metrics[right.metric], t.metrics[up.metric], DOT) for t in inside]
    points += [Point(t.metrics[right.metric], t.metrics[up.metric], marks.front) for t in front]
    points += [Point(_held(t, right, x), _held(t, up, y), marks.now) for t in running]
    lines = sketch(points, x, y, width, height, ascii_only=marks.other == PLAIN_DOT)
    return FrontSketch(lines, len(ended) - len(inside))


def is_rate(history: History, metric: str) -> bool:
    """Whether it is so much a second, by its unit or its name."""
    return unit_of(history, metric).endswith("/s") or metric.endswith("_per_second")


def unit_of(history: History, metric: str) -> str:
    """Its unit, empty where none is known."""
    return str(history.info.get("metrics", {}).get(metric, ""))


def _axis(history: History, objective: Objective, front: Sequence[Trial], trials: Sequence[Trial]) -> Axis:
    values, log = [t.metrics[objective.metric] for t in trials], is_rate(history, objective.metric)
    name = (log and unit_of(history, objective.metric)) or metric_label(objective.metric, history.info["data"])
    label = f"{name} {ARROWS[objective.goal]}{' (log)' * log}"
    low, high = min(values), max(values)
    best = [t.metrics[objective.metric] for t in front]
    if best and min(best) < max(best):
        near, far = min(best), max(best)
        below, above = (near * near / far, far * far / near) if log and near > 0 else (2 * near - far, 2 * far - near)
        low, high = max(low, below), min(high, above)
    return Axis(label, log, (low, high))


def _within(trial: Trial, objective: Objective, axis: Axis) -> bool:
    return _held(trial, objective, axis) == trial.metrics[objective.metric]


def _held(trial: Trial, objective: Objective, axis: Axis) -> float:
    """Its value, or the end of the axis that it is beyond."""
    assert axis.ends is not None
    return min(max(trial.metrics[objective.metric], axis.ends[0]), axis.ends[1])
