"""Figures of a run for notebooks and papers: each one call that takes a `Run` and returns matplotlib's Axes.

Colours are those of Okabe and Ito, which people who are colour-blind tell apart; marks tell the same once more.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from search.front.objective import Objective
from search.record.history import Trial
from search.report.causes import stages
from search.report.importance import Importance, importance
from search.report.picks import merged, picks
from search.results import Run
from search.text.wording import ARROWS, metric_label, setting

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
GREY = "#999999"
MARKERS = "osD^vPX*"
MOST_NAMED = 8  # curves in a legend


class NothingToDrawError(ValueError):
    """The run has none of what the figure is of; the message says what it lacks."""


def plot_front(run: Run, ax: Axes | None = None) -> Axes:
    """The first two objectives of every trial that has them: front, dominated, stopped; the picks by their names.

    Bars are 95% intervals. A stopped trial is shown as far as it came, hollow, and is never on the front.

    Raises:
        NothingToDrawError: no trial has both.
    """
    ax = _axes(ax)
    y, x = _first_two(run)
    shown = [t for t in run.history.trials.values() if _has(t, x) and _has(t, y)]
    if not shown:
        raise NothingToDrawError(f"no trial has {y.metric} and {x.metric} measured")
    front = run.history.front()
    stopped = [t for t in shown if t.state == "stopped"]
    rest = [t for t in shown if t not in front and t.state == "complete"]
    for trials, label, face in ((rest, "dominated", GREY), (stopped, "stopped early", "none")):
        if trials:
            ax.scatter(*_at(trials, x, y), s=24, marker="o", facecolors=face, edgecolors=GREY, label=label)
    _draw_front(ax, run, front, 0, f"front ({len(front)})")
    _name_picks(ax, run, x, y)
    _finish(ax, run, x, y, run.name)
    return ax


def plot_fronts(runs: Mapping[str, Run], ax: Axes | None = None) -> Axes:
    """The fronts of several runs with the same objectives over each other, each with its colour and its mark.

    Raises:
        NothingToDrawError: none has a front.
    """
    ax = _axes(ax)
    if not any(run.history.front() for run in runs.values()):
        raise NothingToDrawError("no run has a front")
    for number, (name, run) in enumerate(runs.items()):
        _draw_front(ax, run, run.history.front(), number, name)
    first = next(iter(runs.values()))
    y, x = _first_two(first)
    _finish(ax, first, x, y, "")
    return ax


def plot_curves(run: Run, ax: Axes | None = None, metric: str | None = None) -> Axes:
    """A metric by epoch, a line a trial: the front in colour, the others grey, stopped ones dashed.

    `metric`: by default the first objective that takes training.

    Raises:
        NothingToDrawError: no trial has an epoch of it.
    """
    from matplotlib.ticker import MaxNLocator

    ax = _axes(ax)
    metric = metric or next(
        (o.metric for o in run.history.objectives if "accuracy" in o.metric or "loss" in o.metric), None
    )
    front = [t.trial_id for t in run.history.front()]
    drawn = 0
    for trial in sorted(run.history.trials.values(), key=lambda t: t.trial_id in front):
        epochs = [e for e in sorted(trial.curve) if e and math.isfinite(_measured_at(trial, e, metric))]
        if not epochs:
            continue
        drawn += 1
        values = [_measured_at(trial, e, metric) for e in epochs]
        dashed = "--" if trial.state == "stopped" else "-"
        mark = "." if len(epochs) == 1 else ""
        if trial.trial_id in front:
            place = front.index(trial.trial_id)
            label = trial.trial_id if place < MOST_NAMED else None
            ax.plot(
                epochs, values, dashed, marker=mark or ".", color=COLORS[place % len(COLORS)], label=label, zorder=3
            )
        else:
            ax.plot(epochs, values, dashed, marker=mark, color=GREY, linewidth=0.8, alpha=0.7)
    if not drawn or metric is None:
        raise NothingToDrawError(f"no epoch of {metric or 'an accuracy'} was measured")
    ax.set(xlabel="epoch", ylabel=metric_label(metric, run.info["data"]), title=run.name)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    if front:
        ax.legend(fontsize=8, title="front")
    return ax


def plot_parallel(run: Run, ax: Axes | None = None) -> Axes:
    """Each compared trial as a line over what the search varied and what came of it; the front in colour.

    Numbers run from low to high, by their logarithm where the space says so; words have a place each; what is not
    active is at the bottom.

    Raises:
        NothingToDrawError: fewer than two trials are compared, or they are all alike.
    """
    ax = _axes(ax)
    trials = run.history.candidates()
    varying = [name for name in run.history.varying(trials) if name in run.history.parameters()]
    if len(trials) < 2 or not varying:
        raise NothingToDrawError("fewer than two different trials are compared")
    scales = [_setting_scale(run, name, trials) for name in varying]
    scales += [_metric_scale(o, trials) for o in run.history.objectives]
    front = {t.trial_id: i for i, t in enumerate(run.history.front())}
    for trial in sorted(trials, key=lambda t: t.trial_id in front):
        on = trial.trial_id in front
        color = COLORS[front[trial.trial_id] % len(COLORS)] if on else GREY
        heights = [scale.place(trial) for scale in scales]
        ax.plot(range(len(scales)), heights, color=color, linewidth=1.8 if on else 0.7, alpha=1 if on else 0.5)
    for at, scale in enumerate(scales):
        ax.axvline(at, color="black", linewidth=0.6)
        for height, text in scale.ticks:
            ax.annotate(text, (at, height), xytext=(3, 0), textcoords="offset points", fontsize=7, va="center")
    ax.set_xticks(range(len(scales)), [scale.label for scale in scales], rotation=20, ha="right", fontsize=8)
    ax.set(
        yticks=[], ylim=(-0.05, 1.05), xlim=(-0.1, len(scales) - 0.5), title=f"{run.name}: {len(front)} on the front"
    )
    return ax


def plot_importance(run: Run, ax: Axes | None = None) -> Axes:
    """How much each setting decides of each objective (PED-ANOVA); pale what may be chance.

    Raises:
        NothingToDrawError: too little was measured to tell; says why.
    """
    from matplotlib.patches import Patch

    ax = _axes(ax)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # in a notebook tqdm, which Optuna imports, misses its widgets
        found = {o.metric: importance(run.history, o) for o in run.history.objectives}
    known = {metric: each for metric, each in found.items() if isinstance(each, Importance)}
    if not known:
        raise NothingToDrawError("; ".join(f"{metric}: {why}" for metric, why in found.items()))
    names = list(dict.fromkeys(name for each in known.values() for name in each.shares))
    thickness = 0.8 / len(known)
    for number, each in enumerate(known.values()):
        for row, name in enumerate(names):
            share = each.shares.get(name, 0.0)
            ax.barh(
                row + (number - (len(known) - 1) / 2) * thickness,
                share,
                thickness * 0.9,
                color=COLORS[number],
                alpha=1.0 if share > each.chance.get(name, 0.0) else 0.35,
            )
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.set(xlabel="share of what the settings decide; pale: may be chance", title=run.name)
    handles = [
        Patch(color=color, label=metric_label(m, run.info["data"])) for m, color in zip(known, COLORS, strict=False)
    ]
    ax.legend(handles=handles, fontsize=8)
    return ax


def plot_stages(run: Run, ax: Axes | None = None) -> Axes:
    """Milliseconds per step by stage, a bar a point of the front; without a front all trials that measured it.

    Raises:
        NothingToDrawError: no step was profiled.
    """
    ax = _axes(ax)
    trials = [t for t in run.history.front() or list(run.history.trials.values()) if sum(stages(t).values()) > 0]
    if not trials:
        raise NothingToDrawError("of no trial a step was profiled")
    names = [name for name in stages(trials[0]) if any(stages(t).get(name) for t in trials)]
    done = np.zeros(len(trials))
    for number, name in enumerate(names):
        widths = np.array([stages(t).get(name, 0.0) for t in trials])
        ax.barh([t.trial_id for t in trials], widths, left=done, color=COLORS[number % len(COLORS)], label=name)
        done += widths
    ax.invert_yaxis()
    ax.set(xlabel="milliseconds per step", title=run.name)
    ax.set_ylim(top=-0.4 - 0.15 * len(trials))  # room for the legend
    ax.legend(fontsize=8, ncols=len(names), loc="upper center")
    return ax


# --- parts ------------------------------------------------------------------------------------------------------------


def _name_picks(ax: Axes, run: Run, x: Objective, y: Objective) -> None:
    """Beside the point, on the side where there is room."""
    middle = sum(ax.get_xlim()) / 2
    for same in merged(picks(run)):
        trial = same[0].trial
        right = trial.metrics[x.metric] < middle
        ax.annotate(
            f"{trial.trial_id}: {', '.join(pick.name for pick in same)}",
            (trial.metrics[x.metric], trial.metrics[y.metric]),
            xytext=(5 if right else -5, 6),
            textcoords="offset points",
            horizontalalignment="left" if right else "right",
            fontsize=8,
        )


class _Scale:
    """One of the parallel axes: where a trial crosses it (0 to 1), and what is written beside it."""

    def __init__(self, label: str, values: Mapping[str, float], ticks: Sequence[tuple[float, str]]) -> None:
        self.label, self._values = label, values
        low, high = min(values.values()), max(values.values())
        self._low, self._extent = low, (high - low) or 1.0
        self.ticks = [((value - self._low) / self._extent, text) for value, text in ticks]

    def place(self, trial: Trial) -> float:
        return (self._values[trial.trial_id] - self._low) / self._extent


def _setting_scale(run: Run, name: str, trials: Sequence[Trial]) -> _Scale:
    """Numbers by size; words, and where it is not active, by their order in the space file."""
    found: dict[str, Any] = {t.trial_id: t.config.get(name) for t in trials}
    stated = run.info["space"]["parameters"].get(name, {})
    present: list[Any] = list(found.values())
    if "min" in stated and all(type(value) in (int, float) for value in present):
        size = math.log10 if stated.get("log") else float
        values = {key: size(float(value)) for key, value in found.items()}
        ends = [min(present), max(present)]
        return _Scale(name, values, [(size(end), setting(end)) for end in ends])
    order = [value for value in [None, *stated.get("values", [])] if value in present]
    order += [value for value in present if value not in order]
    ranks = {key: float(order.index(value)) for key, value in found.items()}
    texts = [(float(i), "–" if value is None else setting(value)) for i, value in enumerate(order)]
    return _Scale(name, ranks, texts)


def _metric_scale(objective: Objective, trials: Sequence[Trial]) -> _Scale:
    values = {t.trial_id: t.metrics[objective.metric] for t in trials}
    ends = [min(values.values()), max(values.values())]
    label = f"{objective.metric} ({ARROWS[objective.goal]})"
    return _Scale(label, values, [(end, f"{end:,.4g}") for end in ends])


def _draw_front(ax: Axes, run: Run, front: Sequence[Trial], number: int, label: str) -> None:
    """Points with their intervals, and the staircase of what they dominate."""
    if not front:
        return
    y, x = _first_two(run)
    color, marker = COLORS[number % len(COLORS)], MARKERS[number % len(MARKERS)]
    ordered = sorted(front, key=lambda t: t.metrics[x.metric])
    where: Literal["post", "pre"] = "post" if y.goal == x.goal == "minimize" else "pre"
    ax.step(*_at(ordered, x, y), where=where, color=color, linewidth=0.9, alpha=0.6)
    bars: dict[str, Any] = {"xerr": _halves(run, ordered, x), "yerr": _halves(run, ordered, y)}
    ax.errorbar(
        *_at(ordered, x, y), **bars, fmt=marker, color=color, markersize=6, capsize=2, elinewidth=0.8, label=label
    )


def _halves(run: Run, trials: Sequence[Trial], objective: Objective) -> list[float]:
    """Half of each 95% interval; where it is as large as its value, nothing is known, and nothing is drawn."""
    halves = [1.96 * run.history.deviation(t, objective.metric) for t in trials]
    values = [t.metrics[objective.metric] for t in trials]
    return [h if math.isfinite(h) and h < abs(v) else 0.0 for h, v in zip(halves, values, strict=True)]


def _finish(ax: Axes, run: Run, x: Objective, y: Objective, title: str) -> None:
    data = run.info["data"]
    ax.set(
        xlabel=f"{metric_label(x.metric, data)} ({ARROWS[x.goal]})",
        ylabel=f"{metric_label(y.metric, data)} ({ARROWS[y.goal]})",
        title=title,
    )
    ax.grid(visible=True, linewidth=0.3)
    ax.legend(fontsize=8)


def _at(trials: Sequence[Trial], x: Objective, y: Objective) -> tuple[list[float], list[float]]:
    return [t.metrics[x.metric] for t in trials], [t.metrics[y.metric] for t in trials]


def _first_two(run: Run) -> tuple[Objective, Objective]:
    first, second, *_ = run.history.objectives
    return first, second


def _has(trial: Trial, objective: Objective) -> bool:
    return math.isfinite(trial.metrics.get(objective.metric, math.nan))


def _measured_at(trial: Trial, epoch: int, metric: str | None) -> float:
    value: float = trial.curve[epoch]["metrics"].get(metric, math.nan)
    return value


def _axes(ax: Axes | None) -> Axes:
    """The given one, or one of a new figure, which a notebook then shows."""
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("figures need matplotlib: pip install 'training-search[plots]'") from error
    return pyplot.subplots(figsize=(8, 5), layout="constrained")[1]
