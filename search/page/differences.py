"""Intervals of how the picks differ from each other, and from themselves with one setting changed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from search.front.differences import MATTERS, Estimate
from search.page.axes import Axis
from search.page.front_status import FrontStatus
from search.page.render import render
from search.record.run_state import RunState
from search.record.trial import Trial
from search.text.configurations import format_change
from search.text.numbers import format_difference, format_ratio

MOST_ROWS = 12  # of a figure


@dataclass(frozen=True)
class Row:
    """A comparison with its text; the 95% interval in percent of the width of the figure."""

    name: str
    text: str
    low: float
    mean: float
    high: float


@dataclass(frozen=True)
class Figure:
    """Comparisons on one axis; `equal`: place of no difference, `tie`: the places between which it does not matter."""

    title: str
    note: str
    rows: Sequence[Row]
    equal: float
    tie: tuple[float, float] | None = None


def difference_figures(status: FrontStatus) -> Markup:
    """Render a figure for each objective that has intervals, and one for the single changes; empty: there are none."""
    state = status.run.state
    picked = list({trial.trial_id: trial for trial in state.picked()}.values())
    pairs = list(itertools.combinations(picked, 2))
    figures = [figure for o in state.objectives if (figure := _of_pairs(state, o.metric, pairs))]
    found = [(trial, each) for trial in picked for each in trial.neighbours]
    rows = [
        (f"{trial.trial_id} {format_change(each.parameter, each.old, each.new)}", estimate)
        for trial, each in found
        if (estimate := each.estimate)
    ]
    if rows:
        note = "Rate with the change over the rate without it, in turns."
        figures.append(_of_ratios("One setting changed", note, sorted(rows, key=lambda row: -row[1].mean)))
    return render("differences.html", figures=figures) if figures else Markup()


def _of_pairs(state: RunState, metric: str, pairs: Iterable[tuple[Trial, Trial]]) -> Figure | None:
    label = state.label(metric)
    if metric == state.rate_metric:
        known = [pair for pair in pairs if all(state.half_interval(trial, metric) for trial in pair)]
        ratios = [(f"{a.trial_id} / {b.trial_id}", ratio) for a, b in known if (ratio := state.rate_ratio(a, b))]
        note = "Ratio of the rates; in the band the difference does not matter."
        return _of_ratios(label, note, ratios) if ratios else None
    found = [(f"{a.trial_id} - {b.trial_id}", state.difference(a, b, metric)) for a, b in pairs]
    if not any(difference.deviation for _, difference in found):
        return None
    texts = [format_difference(d.mean, d.low, d.high, state.is_fraction(metric)) for _, d in found]
    place, equal = _axis([d for _, d in found])
    rows = [
        Row(name, text, place(d.low), place(d.mean), place(d.high))
        for (name, d), text in zip(found, texts, strict=True)
    ]
    return Figure(label, "Difference on the same validation samples, where they are known.", rows[:MOST_ROWS], equal)


def _of_ratios(title: str, note: str, found: Sequence[tuple[str, Estimate]]) -> Figure:
    found = found[:MOST_ROWS]
    place, equal = _axis([*(ratio for _, ratio in found), Estimate(0.0, MATTERS)])
    rows = [
        Row(name, format_ratio(*ratio.ratio), place(ratio.low), place(ratio.mean), place(ratio.high))
        for name, ratio in found
    ]
    return Figure(title, note, rows, equal, (place(-MATTERS), place(MATTERS)))


def _axis(estimates: Sequence[Estimate]) -> tuple[Callable[[float], float], float]:
    """Return the places of values on an axis that has all intervals and no difference, and that of no difference."""
    ends = [0.0, *(end for each in estimates for end in (each.low, each.high) if math.isfinite(end))]
    place = Axis(min(ends), max(ends) if any(ends) else 1.0).position
    return place, place(0.0)
