"""The table of all trials, and the filter. The page's scripts read the table too, so each value is in the page once."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from markupsafe import Markup

from search.front.roles import wanted_test_metrics
from search.page.front_status import STATUSES, FrontStatus
from search.page.render import render
from search.page.setting_axes import SettingAxis, setting_axes
from search.record.trial import Trial
from search.report.causes import bound, stage_milliseconds
from search.text.configurations import format_setting
from search.text.durations import format_duration
from search.text.metrics import ARROWS
from search.text.numbers import format_number, format_percent, format_probability
from trainables.contract import STAGES

SHARES = {
    "peak_memory_fraction": "memory share",
    "cpu_utilization": "CPU",
    "gpu_utilization": "GPU",
    "fraction_of_ceiling": "of ceiling",
}
MAX_CHOICES = 12  # values of a setting that the filter offers


@dataclass(frozen=True)
class Column:
    """A heading, the text of a trial's cell, and the value to sort by if that is not the text."""

    title: str
    text: Callable[[Trial], str]
    value: Callable[[Trial], float] | None = None
    setting: str = ""  # the parameter that it shows
    stage: str = ""  # the stage that it shows
    numeric: bool = True


def trial_table(status: FrontStatus) -> Markup:
    """Render a row for each trial: first the front, then the ties, then all others as they were started."""
    run_state, ties = status.run.state, status.ties()
    names = dict.fromkeys([*(trial.trial_id for trial in run_state.front()), *ties, *run_state.trials])
    trials = [run_state.trials[name] for name in names]
    columns = [c for c in _columns(status) if any(c.text(trial) not in ("", "–") for trial in trials)]
    return render("trials.html", status=status, statuses=STATUSES, trials=trials, columns=columns)


def filter_form(status: FrontStatus) -> Markup:
    """Render the filter of all charts and the table: by state, by values of settings, by words."""
    run_state = status.run.state
    trials = list(run_state.trials.values())
    states = SettingAxis("state", tuple(run_state.shown_counts(status.is_running)))
    settings = [s for s in setting_axes(run_state, trials) if len(s.values) <= MAX_CHOICES]
    return render("filter.html", settings=[states, *settings], total=len(trials))


def _columns(status: FrontStatus) -> list[Column]:
    run_state = status.run.state
    trials = list(run_state.trials.values())
    objectives = [objective.metric for objective in run_state.objectives]
    tested = dict.fromkeys(name for trial in trials for name in wanted_test_metrics(objectives, trial.test_metrics))

    def stated(name: str, suffix: str = "") -> Column:
        title = f"{run_state.label(name)}{suffix}"
        return Column(title, lambda t: run_state.format_metric(t, name), lambda t: t.metrics.get(name, math.nan))

    def formatted(name: str, title: str, text: Callable[[float], str]) -> Column:
        return Column(title, lambda t: text(t.metrics.get(name, math.nan)), lambda t: t.metrics.get(name, math.nan))

    def of_stage(stage: str) -> Column:
        return Column(f"{stage} ms", lambda t: format_number(stage_milliseconds(t).get(stage, math.nan)), stage=stage)

    def of_setting(setting: SettingAxis) -> Column:
        name, is_range = setting.name, setting.range is not None
        return Column(
            name,
            lambda trial: format_setting(trial.config[name]) if trial.config.get(name) is not None else "",
            (lambda trial: trial.config.get(name, math.nan)) if is_range else None,
            setting=name,
            numeric=is_range or all(value[:1].isdigit() for value in setting.values),
        )

    def probability(trial: Trial) -> float:
        return status.run.front_probabilities.get(trial.trial_id, math.nan)

    return [
        Column("state", status.shown_state, numeric=False),
        *(stated(o.metric, f" {ARROWS[o.goal]}") for o in run_state.objectives),
        Column("on the front", lambda trial: format_probability(probability(trial)), probability),
        *map(stated, tested),
        *map(of_setting, setting_axes(run_state, trials)),
        Column("epochs", lambda trial: str(trial.epochs) if trial.kind != "probe" else "probe"),
        Column("time", lambda trial: format_duration(trial.seconds), lambda trial: trial.seconds),
        Column("bound by", bound, numeric=False),
        *map(of_stage, STAGES),
        formatted("peak_memory_gib", "memory GiB", format_number),
        *(formatted(name, title, format_percent) for name, title in SHARES.items()),
        Column("restarts", lambda trial: str(trial.retries or "")),
        Column("reason", lambda trial: trial.reason or "", numeric=False),
    ]
