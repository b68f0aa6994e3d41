"""Stage times of trials, and the run's own verdict on each: its bottleneck and the changes that would help."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from search.record.trial import Trial
from search.text.configurations import format_setting, format_settings
from search.text.markdown import format_tables, wrap
from search.text.numbers import format_number, format_percent

STAGES = ("load", "transfer", "forward", "backward", "communicate", "update")
MOST_ADVICE = 2  # for one trial


def stages(trial: Trial) -> dict[str, float]:
    """Return milliseconds per step of each measured stage, in order; empty if no step was profiled."""
    seconds = {stage: trial.metrics.get(f"{stage}_seconds", math.nan) for stage in STAGES}
    return {stage: 1000 * value for stage, value in seconds.items() if math.isfinite(value)}


def where_time_goes(trials: Sequence[Trial], front: Sequence[Trial], varying: Sequence[str]) -> list[str]:
    """Return stage times and shares of the profiled trials, with the settings that vary and the front's verdicts."""
    trials = [trial for trial in trials if sum(stages(trial).values()) > 0]
    if not trials:
        return []
    rows = [stages(trial) for trial in trials]
    totals = [sum(row.values()) for row in rows]
    names = [stage for stage in STAGES if any(row.get(stage) for row in rows)]
    times = {name: [format_number(row.get(name, math.nan)) for row in rows] for name in names}
    times["step"] = [format_number(total) for total in totals]
    if varying:
        times["settings"] = [format_settings(trial.config, varying) for trial in trials]
    shares = {
        name: [format_percent(row.get(name, math.nan) / total) for row, total in zip(rows, totals, strict=True)]
        for name in names
    }
    first = {"trial": [trial.trial_id for trial in trials]}
    return [
        "Milliseconds per step, from separately profiled steps:",
        *format_tables(first, times),
        "Shares of the step:",
        *format_tables(first, {**shares, "bound by": [bound(trial) for trial in trials]}),
        *verdicts(trial for trial in trials if trial in front),
    ]


def verdicts(trials: Iterable[Trial]) -> list[str]:
    """Return a list with the bottleneck of each trial and the advice that the run recorded."""
    lines = []
    for trial, verdict in ((trial, trial.verdict) for trial in trials if trial.verdict):
        advice = [
            f"`{a.parameter}` {format_setting(a.old)} → {format_setting(a.new)} should give {a.gain:.2f}x: {a.why}."
            for a in verdict.advice[:MOST_ADVICE]
        ]
        text = " ".join(advice) or "No one setting promises more."
        lines.append(wrap(f"- {trial.trial_id}: {verdict.why}. {text}", "  "))
    return ["\n".join(lines)] if lines else []


def bound(trial: Trial) -> str:
    """Return the trial's bottleneck for a table cell; empty without a verdict."""
    return trial.verdict.bound_by if trial.verdict else ""
