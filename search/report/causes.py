"""Stage times of trials, the bottleneck of each, and the single changes that make it faster, as measured."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from search.front.neighbour import MIN_GAIN, gains
from search.record.trial import Trial
from search.text.configurations import format_change, format_settings
from search.text.markdown import format_tables, wrap
from search.text.numbers import format_number, format_percent, format_ratio, plural
from trainables.contract import STAGES


def stage_milliseconds(trial: Trial) -> dict[str, float]:
    """Return milliseconds per step of each measured stage, in order; empty if no step was profiled."""
    return {stage: 1000 * seconds for stage, seconds in trial.stages.items()}


def measured_stages(trials: Iterable[Trial]) -> list[str]:
    """Return the stages that take time in any of these trials, in order."""
    found = {stage for trial in trials for stage, seconds in trial.stages.items() if seconds}
    return [stage for stage in STAGES if stage in found]


def where_time_goes(trials: Sequence[Trial], front: Sequence[Trial], varying: Sequence[str]) -> list[str]:
    """Return stage times and shares of the profiled trials, with the settings that vary and the front's verdicts."""
    trials = [trial for trial in trials if trial.stages]
    if not trials:
        return []
    rows = [stage_milliseconds(trial) for trial in trials]
    totals = [sum(row.values()) for row in rows]
    names = measured_stages(trials)
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
    """Return a list with the bottleneck of each trial, and what would make it faster where that was measured."""
    lines = [
        wrap(f"- {trial.trial_id}: {trial.verdict.why}. {measured_advice(trial)}".rstrip(), "  ")
        for trial in trials
        if trial.verdict
    ]
    return ["\n".join(lines)] if lines else []


def measured_advice(trial: Trial) -> str:
    """Return which single changes make the trial faster, by turns beside it; empty: not measured."""
    measured = [each for each in trial.neighbours if each.estimate]
    if not measured:
        return ""
    found = []
    for each in gains(measured):
        assert each.estimate is not None  # it is measured
        change = format_change(each.parameter, each.old, each.new)
        found.append(f"{change}: {format_ratio(*each.estimate.ratio)} times its rate")
    tried = f"{plural(len(measured), 'single change')} measured beside it"
    return f"{', '.join(found)} ({tried})." if found else f"None surely gains more than {MIN_GAIN:.0%}: {tried}."


def bound(trial: Trial) -> str:
    """Return the trial's bottleneck for a table cell; empty without a verdict."""
    return trial.verdict.bound_by if trial.verdict else ""
