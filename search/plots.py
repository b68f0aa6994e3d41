"""Figures of a run for notebooks and papers. Each function takes a `Run` and returns matplotlib Axes.

The colours of Okabe and Ito can be distinguished by colour-blind readers; marker shapes repeat the distinction.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from search.front.intervals import interval
from search.front.objective import Objective, measured
from search.record.dataframes import Run
from search.record.trial import Trial
from search.report.causes import measured_stages, stage_milliseconds
from search.report.importance import Importance, importance
from search.report.picks import picks_by_trial
from search.text.configurations import format_setting
from search.text.metrics import ARROWS
from search.text.numbers import format_number
from search.text.shorten import shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Annotation

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
GREY = "#999999"
MARKERS = "osD^vPX*"
MAX_NAMED = 8  # curves in a legend
MOST_STEPS = 100  # of two points, by which a name is moved
MAX_TICK = 16  # characters of a setting's value
INACTIVE_SHARE = 0.15  # of an axis, below the numbers, for a setting that is not active


class NothingToDrawError(ValueError):
    """The run has no data for the figure; the message says what is missing."""


def plot_front(run: Run, ax: Axes | None = None) -> Axes:
    """Plot the first two objectives of all trials: the front with 95% intervals, the dominated, the stopped, the picks.

    A stopped trial is hollow, at its last measurement, and is never on the front. Complete trials that violate a
    constraint, or that were trained for fewer epochs than others, are crosses: they are not compared.

    Raises:
        NothingToDrawError: no trial has both objectives.
    """
    y, x = _first_two(run)
    trials = run.state.trials.values()
    shown = [t for t in trials if t.state in ("complete", "stopped") and measured(t.metrics, (x, y))]
    if not shown:
        raise NothingToDrawError(f"no complete or stopped trial has {y.metric} and {x.metric} measured")
    ax = _axes(ax)
    front, compared = run.state.front(), run.state.candidates()
    dominated = [t for t in shown if t in compared and t not in front]
    others = [t for t in shown if t not in compared and t.state == "complete"]
    stopped = [t for t in shown if t.state == "stopped"]
    styles: Sequence[tuple[Sequence[Trial], Mapping[str, Any]]] = (
        (dominated, {"label": "dominated", "marker": "o", "color": GREY}),
        (others, {"label": "not compared", "marker": "x", "color": GREY}),
        (stopped, {"label": "stopped early", "marker": "o", "facecolors": "none", "edgecolors": GREY}),
    )
    for some, style in styles:
        if some:
            ax.scatter(*_at(some, x, y), s=24, **style)
    _draw_front(ax, run, front, run.state.objectives, 0, f"front ({len(front)})")
    middle, names = sum(ax.get_xlim()) / 2, []
    for same in picks_by_trial(run):
        trial = same[0].trial
        at = trial.metrics[x.metric], trial.metrics[y.metric]
        offset, side = (5, "left") if at[0] < middle else (-5, "right")
        text = f"{trial.trial_id}: {', '.join(pick.name for pick in same)}"
        placed: dict[str, Any] = {"xytext": (offset, 6), "textcoords": "offset points", "horizontalalignment": side}
        names.append(ax.annotate(_plain(text), at, fontsize=8, **placed))
    ax.margins(y=0.15)  # room for names
    _finish(ax, run, _plain(run.name))
    _separate(ax, names)
    return ax


def plot_fronts(runs: Mapping[str, Run], ax: Axes | None = None) -> Axes:
    """Plot the fronts of several runs with the same objectives, each with its own colour and marker.

    Raises:
        NothingToDrawError: no run has a front, or the first one has a single objective.
    """
    if not any(run.state.front() for run in runs.values()):
        raise NothingToDrawError("no run has a front")
    first = next(iter(runs.values()))
    _first_two(first)
    ax = _axes(ax)
    for number, (name, run) in enumerate(runs.items()):
        _draw_front(ax, run, run.state.front(), first.state.objectives, number, _plain(name))
    _finish(ax, first, "")
    return ax


def plot_curves(run: Run, ax: Axes | None = None, metric: str | None = None) -> Axes:
    """Plot a metric by epoch, one line per trial: the front in colour, other trials grey, stopped trials dashed.

    `metric`: by default the first objective that is learned.

    Raises:
        NothingToDrawError: the metric was not measured at any epoch.
    """
    learned = (o.metric for o in run.state.objectives if run.info.is_learned(o.metric))
    metric = metric or next(learned, None)
    curves = {
        t.trial_id: [
            (epoch, value)
            for epoch in sorted(t.curve)
            if epoch and math.isfinite(value := t.curve[epoch].metrics.get(metric or "", math.nan))
        ]
        for t in run.state.trials.values()
    }
    if metric is None or not any(curves.values()):
        raise NothingToDrawError(f"no epoch of {metric or 'a learned metric'} was measured")
    ax = _axes(ax)
    from matplotlib.ticker import MaxNLocator

    front = [t.trial_id for t in run.state.front()]
    for trial in sorted(run.state.trials.values(), key=lambda t: t.trial_id in front):
        values, style = curves[trial.trial_id], "--" if trial.state == "stopped" else "-"
        if values and trial.trial_id in front:
            place = front.index(trial.trial_id)
            label = trial.trial_id if place < MAX_NAMED else None
            color = COLORS[place % len(COLORS)]
            ax.plot(*zip(*values, strict=True), style, marker=".", color=color, label=label, zorder=3)
        elif values:
            mark = "." if len(values) == 1 else ""
            ax.plot(*zip(*values, strict=True), style, marker=mark, color=GREY, linewidth=0.8, alpha=0.7)
    ax.set(xlabel="epoch", ylabel=run.state.label(metric), title=_plain(run.name))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    if front:
        ax.legend(fontsize=8, title="front")
    return ax


def plot_parallel(run: Run, ax: Axes | None = None) -> Axes:
    """Plot each compared trial as a line through its varied settings and its objectives; the front in colour.

    A range runs from low to high, logarithmic where the space file says so. The values of a list have equal distances,
    in the order of the space file; an inactive setting is at the bottom.

    Raises:
        NothingToDrawError: fewer than two trials are compared, or no setting varies.
    """
    trials = run.state.candidates()
    varying = [name for name in run.state.varying_parameters(trials) if name in run.state.parameters()]
    if len(trials) < 2 or not varying:
        raise NothingToDrawError("fewer than two different trials are compared")
    ax = _axes(ax)
    scales = [_setting_scale(run, name, trials) for name in varying]
    for o in run.state.objectives:
        values = [t.metrics[o.metric] for t in trials]
        ends = {end: format_number(end) for end in (min(values), max(values))}
        scales.append(_Scale(f"{run.state.label(o.metric)} ({ARROWS[o.goal]})", values, ends))
    table = np.array([scale.values for scale in scales])
    low = table.min(axis=1)
    extent = np.where(table.max(axis=1) > low, table.max(axis=1) - low, 1.0)
    heights = (table.T - low) / extent  # of each trial on each axis, from 0 to 1
    front = {t.trial_id: i for i, t in enumerate(run.state.front())}
    for trial, line in sorted(zip(trials, heights, strict=True), key=lambda pair: pair[0].trial_id in front):
        on = trial.trial_id in front
        color = COLORS[front[trial.trial_id] % len(COLORS)] if on else GREY
        ax.plot(range(len(scales)), line, color=color, linewidth=1.8 if on else 0.7, alpha=1 if on else 0.5)
    for at, scale in enumerate(scales):
        ax.axvline(at, color="black", linewidth=0.6)
        for value, text in scale.ticks.items():
            place = (at, (value - low[at]) / extent[at])
            short = shorten(text, MAX_TICK)
            note = ax.annotate(short, place, xytext=(3, 0), textcoords="offset points", fontsize=7, va="center")
            note.set_in_layout(False)
    labels = [_plain(scale.label) for scale in scales]
    ax.set_xticks(range(len(scales)), labels, rotation=20, ha="right", fontsize=8)
    title = f"{_plain(run.name)}: {len(front)} on the front"
    ax.set(yticks=[], ylim=(-0.05, 1.05), xlim=(-0.1, len(scales) - 0.5), title=title)
    return ax


def plot_importance(run: Run, ax: Axes | None = None) -> Axes:
    """Plot the importance of each setting for each objective (PED-ANOVA); bars that may be chance are pale.

    Raises:
        NothingToDrawError: there are too few measurements.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tqdm, which Optuna imports, warns in a notebook without widgets
        found = {o.metric: importance(run.state, o) for o in run.state.objectives}
    known = {metric: each for metric, each in found.items() if isinstance(each, Importance)}
    if not known:
        raise NothingToDrawError("; ".join(f"{metric}: {str(why).rstrip('.')}" for metric, why in found.items()))
    ax = _axes(ax)
    from matplotlib.patches import Patch

    names = list(dict.fromkeys(name for each in known.values() for name in each.shares))
    thickness = 0.8 / len(known)
    for number, each in enumerate(known.values()):
        for row, name in enumerate(names):
            share, at = each.shares.get(name, 0.0), row + (number - (len(known) - 1) / 2) * thickness
            opacity = 1.0 if share > each.chance else 0.35
            ax.barh(at, share, thickness * 0.9, color=COLORS[number % len(COLORS)], alpha=opacity)
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.set(xlabel="share of the importance; pale: may be chance", title=_plain(run.name))
    labels = list(map(run.state.label, known))
    ax.legend(handles=[Patch(color=c, label=t) for c, t in zip(itertools.cycle(COLORS), labels)], fontsize=8)
    return ax


def plot_stages(run: Run, ax: Axes | None = None) -> Axes:
    """Plot milliseconds per step by stage, one bar per profiled trial of the front; if there is none, of all trials.

    Raises:
        NothingToDrawError: no trial profiled its steps.
    """
    profiled = [t for t in run.state.trials.values() if t.stages]
    trials = [t for t in run.state.front() if t in profiled] or profiled
    if not trials:
        raise NothingToDrawError("no trial profiled its steps")
    ax = _axes(ax)
    names = measured_stages(trials)
    done = np.zeros(len(trials))
    for number, name in enumerate(names):
        widths = np.array([stage_milliseconds(t).get(name, 0.0) for t in trials])
        ax.barh([t.trial_id for t in trials], widths, left=done, color=COLORS[number % len(COLORS)], label=name)
        done += widths
    ax.invert_yaxis()
    ax.set(xlabel="milliseconds per step", title=_plain(run.name))
    ax.set_ylim(top=-0.4 - 0.15 * len(trials))  # room for the legend
    ax.legend(fontsize=8, ncols=len(names), loc="upper center")
    return ax


def _first_two(run: Run) -> Sequence[Objective]:
    if len(run.state.objectives) < 2:
        raise NothingToDrawError("a front has two objectives, and there is one")
    return run.state.objectives[:2]


class _Scale(NamedTuple):
    """One of the parallel axes: a number for each trial, and tick labels by number."""

    label: str
    values: Sequence[float]
    ticks: Mapping[float, str]


def _setting_scale(run: Run, name: str, trials: Sequence[Trial]) -> _Scale:
    """Return numbers of a range by size, values of a list by their order in the space file, None (inactive) below."""
    found: list[Any] = [t.config.get(name) for t in trials]
    stated = run.info.parameters.get(name, {})
    active = [value for value in found if value is not None]
    if "min" in stated and all(type(value) in (int, float) for value in active):
        size = math.log10 if stated.get("log") else float
        low, high = size(min(active)), size(max(active))
        bottom = low - (INACTIVE_SHARE * (high - low) or 1.0)
        ends = {low: format_setting(min(active)), high: format_setting(max(active))}
        ends |= {bottom: "–"} if len(active) < len(found) else {}
        return _Scale(name, [bottom if value is None else size(float(value)) for value in found], ends)
    order = [value for value in [None, *stated.get("values", [])] if value in found]
    order += [value for value in found if value not in order]
    labels = {float(i): "–" if value is None else _plain(format_setting(value)) for i, value in enumerate(order)}
    return _Scale(name, [float(order.index(value)) for value in found], labels)


def _draw_front(
    ax: Axes, run: Run, front: Sequence[Trial], objectives: Sequence[Objective], number: int, label: str
) -> None:
    """Draw a front with its intervals on the first two objectives; of two, the boundary of what it dominates, too."""
    if not front:
        return
    y, x = objectives[:2]
    color, marker = COLORS[number % len(COLORS)], MARKERS[number % len(MARKERS)]
    ordered = sorted(front, key=lambda t: t.metrics[x.metric])
    where: Literal["post", "pre"] = "post" if x.goal == "minimize" else "pre"
    horizontal, vertical = _at(ordered, x, y)
    if len(objectives) == 2:
        ax.step(horizontal, vertical, where=where, color=color, linewidth=0.9, alpha=0.6)
    errors = [np.transpose([_bar(run, trial, objective.metric) for trial in ordered]) for objective in (x, y)]
    bars: dict[str, Any] = {"xerr": errors[0], "yerr": errors[1], "fmt": marker, "color": color, "label": label}
    ax.errorbar(horizontal, vertical, **bars, markersize=6, capsize=2, elinewidth=0.8)


def _bar(run: Run, trial: Trial, metric: str) -> tuple[float, float]:
    """Return how far the 95% interval reaches below and above; zeros where it is not known."""
    value, half = trial.metrics[metric], run.state.half_interval(trial, metric)
    if half is None:
        return 0.0, 0.0
    low, high = interval(trial.metrics, metric, half)
    return max(0.0, value - low), max(0.0, high - value)


def _finish(ax: Axes, run: Run, title: str) -> None:
    y_label, x_label = (f"{run.state.label(o.metric)} ({ARROWS[o.goal]})" for o in run.state.objectives[:2])
    ax.set(xlabel=x_label, ylabel=y_label, title=title)
    ax.grid(visible=True, linewidth=0.3)
    ax.legend(fontsize=8)


def _separate(ax: Axes, names: Sequence[Annotation]) -> None:
    """Move names up until none covers another; those of points beyond the axes are not shown."""
    ax.figure.draw_without_rendering()  # type: ignore[union-attr]  # places are known only then
    shown = [name for name in names if np.isfinite(name.get_window_extent().extents).all()]
    taken = list[Any]()
    for name in sorted(shown, key=lambda name: name.get_window_extent().y0):
        x, y = name.get_position()
        for _ in range(MOST_STEPS):
            if not any(name.get_window_extent().overlaps(box) for box in taken):
                break
            y += 2
            name.set_position((x, y))
        taken.append(name.get_window_extent())


def _plain(text: str) -> str:
    """Return a text in which dollars begin no formula."""
    return text.replace("$", r"\$")


def _at(trials: Sequence[Trial], x: Objective, y: Objective) -> tuple[list[float], list[float]]:
    return [t.metrics[x.metric] for t in trials], [t.metrics[y.metric] for t in trials]


def _axes(ax: Axes | None) -> Axes:
    """Return the given Axes, or those of a new figure, which a notebook then shows."""
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("figures need matplotlib: pip install 'training-search[plots]'") from error
    return pyplot.subplots(figsize=(8, 5), layout="constrained")[1]
