"""Bars of each trial's time per sample, by stage of the training step."""

from __future__ import annotations

from markupsafe import Markup

from search.page.front_status import FrontStatus
from search.page.render import render
from search.record.trial import Trial
from search.report.causes import bound, measured_stages, stage_milliseconds
from search.report.sweeps import one_unit
from search.text.configurations import format_settings
from search.text.numbers import format_percent, plural

MAX_BARS = 24


def stage_bars(status: FrontStatus) -> Markup | None:
    """Render a bar for each trial whose steps were profiled, the fastest first; None: no trial was profiled."""
    run_state = status.run.state
    known = sorted((t for t in run_state.trials.values() if t.stages), key=_microseconds)
    if not known:
        return None
    front = [t for t in known if status.of[t.trial_id] == "front"]
    others = [t for t in known if t not in front]
    shown = sorted([*front, *others[: max(MAX_BARS - len(front), 0)]], key=_microseconds)
    slower = len(known) - len(shown)
    ignored = run_state.info.without_effect(run_state.rate_metric)
    varying = [name for name in run_state.varying_parameters(known) if name not in ignored]
    bars, longest = [], max(map(_microseconds, shown))
    for trial in shown:
        times = {stage: value for stage, value in stage_milliseconds(trial).items() if value}
        whole, length = sum(times.values()), 100 * _microseconds(trial) / longest
        begin, parts = 0.0, []
        for stage, value in times.items():
            parts.append((stage, begin, length * value / whole))
            begin += length * value / whole
        words = ", ".join(f"{stage} {format_percent(value / whole)}" for stage, value in times.items())
        bars.append(
            {
                "trial_id": trial.trial_id,
                "on_front": trial in front,
                "label": f"{words}, bound by {bound(trial)}" if trial.verdict else words,
                "parts": parts,  # stage, begin and width
                "microseconds": _microseconds(trial),
                "settings": " · ".join(filter(None, [format_settings(trial.config, varying), bound(trial)])),
            }
        )
    return render(
        "stage_times.html",
        stages={stage: stage for stage in measured_stages(shown)},
        unit=one_unit(shown[0]) if any("batch_size" in t.config for t in shown) else "a step",
        slower=f" {plural(slower, 'slower trial')} only in the table of all trials." if slower else "",
        bars=bars,
    )


def _microseconds(trial: Trial) -> float:
    """Time per sample over all stages; per step, if the configuration has no batch size."""
    size = trial.config.get("batch_size")
    return 1000 * sum(stage_milliseconds(trial).values()) / (size if type(size) is int and size > 0 else 1)
