"""Points of a front that are worth naming: the best of each objective, and the knee between them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from search.front.objective import measured
from search.front.pareto import knee
from search.record.history import Trial
from search.results import Run
from search.text.wording import count, metric_label

# what people call the best of an objective; others are "best <metric>"
BEST = {"val_accuracy": "most accurate", "images_per_second": "fastest"}
NEAREST = "nearest to the best of all objectives at once, each scaled to its range"


@dataclass(frozen=True)
class Pick:
    """A trial worth running, what it is called, and why."""

    name: str
    why: str
    trial: Trial


def picks(run: Run) -> list[Pick]:
    """The best of the first objective, the knee, the best of each other objective; none without a front.

    One trial may be several of them.
    """
    front = run.history.front()
    if not front:
        return []
    losses = run.history.losses(front)
    middle = Pick("knee", NEAREST, front[knee(losses)])
    compared = count(len(run.history.candidates()), "trial")
    ends = [
        Pick(
            BEST.get(objective.metric, f"best {objective.metric}"),
            f"best {metric_label(objective.metric, run.info['data'])} of the {compared} compared",
            front[int(column.argmin())],
        )
        for objective, column in zip(run.history.objectives, losses.T, strict=True)
    ]
    return [ends[0], middle, *ends[1:]]


def merged(named: Iterable[Pick]) -> list[list[Pick]]:
    """Picks that are the same trial together."""
    by_trial: dict[str, list[Pick]] = defaultdict(list)
    for pick in named:
        by_trial[pick.trial.trial_id].append(pick)
    return list(by_trial.values())


def against(run: Run, trial: Trial, others: Sequence[Sequence[Pick]]) -> list[str]:
    """A sentence for each other pick (the same trial's together) and the baseline: how this trial compares to it."""
    named = [(same[0].name, same[0].trial) for same in others]
    usual = run.history.baseline
    if usual is not None and usual.state == "complete" and measured(usual.metrics, run.history.objectives):
        named.append((f"baseline, {usual.trial_id}", usual))
    return [f"Against the {name}: {_beside(run, trial, other)}." for name, other in named if other is not trial]


def no_front(run: Run) -> str:
    """Why a run has no front."""
    if not run.history.trials:
        return "no trial was started"
    if not run.history.counts()["complete"]:
        return "no trial completed, so there is no Pareto front"
    return "no complete trial has every objective measured within the constraints, so there is no Pareto front"


def _beside(run: Run, trial: Trial, other: Trial) -> str:
    """Each objective beside that of the other trial: fractions as a difference, the rest as a ratio."""
    parts = []
    for metric in (o.metric for o in run.history.objectives):
        value, base, label = trial.metrics[metric], other.metrics[metric], metric_label(metric, run.info["data"])
        if "accuracy" in metric or run.info.get("metrics", {}).get(metric) == "fraction" or base <= 0:
            parts.append(f"{label} {value - base:+.4f}")
        else:
            parts.append(f"{value / base:.2f} times its {label}")
    return ", ".join(parts)
