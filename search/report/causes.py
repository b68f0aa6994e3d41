"""Where a trial's time goes, what bounds it and what would help: as it measured, and as the run wrote it down."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from search.record.history import Trial
from search.text.markdown import tables, wrapped
from search.text.wording import number, percent, setting, short_settings

STAGES = ("load", "transfer", "forward", "backward", "communicate", "update")
MOST_ADVICE = 2  # for one trial


def stages(trial: Trial) -> dict[str, float]:
    """Milliseconds per step of each stage that was measured, in their order; none: no step was profiled."""
    seconds = {stage: trial.metrics.get(f"{stage}_seconds", math.nan) for stage in STAGES}
    return {stage: 1000 * value for stage, value in seconds.items() if math.isfinite(value)}


def where_time_goes(trials: Sequence[Trial], front: Sequence[Trial], varying: Sequence[str]) -> list[str]:
    """Stage times and shares of each trial whose stages were measured, with the settings that vary.

    Then what bounds those of the front, and what would help.
    """
    trials = [trial for trial in trials if sum(stages(trial).values()) > 0]
    if not trials:
        return []
    rows = [stages(trial) for trial in trials]
    totals = [sum(row.values()) for row in rows]
    names = [stage for stage in STAGES if any(row.get(stage) for row in rows)]
    times = {name: [number(row.get(name, math.nan)) for row in rows] for name in names}
    times["step"] = [number(total) for total in totals]
    if varying:
        times["settings"] = [short_settings(trial.config, varying) for trial in trials]
    shares = {
        name: [percent(row.get(name, math.nan) / total) for row, total in zip(rows, totals, strict=True)]
        for name in names
    }
    first = {"trial": [trial.trial_id for trial in trials]}
    return [
        "Milliseconds per step, from profiled steps of their own:",
        *tables(first, times),
        "Shares of the step:",
        *tables(first, {**shares, "bound by": [bound(trial) for trial in trials]}),
        *verdicts(trial for trial in trials if trial in front),
    ]


def verdicts(trials: Iterable[Trial]) -> list[str]:
    """A list of what bounds each trial and what would help, as the run wrote it down."""
    lines = [
        wrapped(" ".join([f"- {t.trial_id}: {t.verdict['why']}.", *_advice(t.verdict)]), "  ")
        for t in trials
        if t.verdict
    ]
    return ["\n".join(lines)] if lines else []


def _advice(verdict: Mapping[str, Any]) -> list[str]:
    advice = verdict.get("advice", [])[:MOST_ADVICE]
    return [
        f"`{a['parameter']}` {setting(a['old'])} → {setting(a['new'])} should give {a['gain']:.2f}x: {a['why']}."
        for a in advice
    ] or ["No one setting promises more."]


def bound(trial: Trial) -> str:
    """For a table's cell."""
    return str(trial.verdict["bound_by"]) if trial.verdict else ""
