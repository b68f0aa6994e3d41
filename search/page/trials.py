"""Every trial as a row of one table. It is also what the page's scripts read: each figure is in the page once."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from search.page.markup import Html, tag
from search.page.prose import scrolling
from search.page.settings import Setting, varied
from search.page.standing import STANDINGS, Standings, stated
from search.record.history import STATES, Trial
from search.report.causes import STAGES, bound, stages
from search.text.wording import ARROWS, count, duration, metric_label, number, percent, setting

MEASURES = {"peak_memory_gib": "memory GiB"}
SHARES = {
    "peak_memory_fraction": "memory share",
    "cpu_utilization": "CPU",
    "gpu_utilization": "GPU",
    "fraction_of_ceiling": "of ceiling",
}
MOST_CHOICES = 12  # of a setting that are offered one by one


@dataclass(frozen=True)
class Column:
    """A heading, what stands below it for a trial, and what to sort by where that differs from what stands there."""

    title: str
    cell: Callable[[Trial], str]
    sort: Callable[[Trial], float | str] | None = None
    setting: str | None = None  # the parameter that it shows
    stage: str | None = None  # the stage that it shows
    figures: bool = True


def trial_table(standings: Standings) -> Html:
    """The table of all trials."""
    trials = _ordered(standings)
    columns = [c for c in _columns(standings) if any(c.cell(trial) not in ("", "–") for trial in trials)]
    head = tag("tr", tag("th", _sorter("trial"), scope="col"), *(_heading(column) for column in columns))
    body = [_row(standings, trial, columns) for trial in trials]
    caption = tag("caption", f"All {count(len(trials), 'trial')}", class_="unseen")
    return scrolling(tag("table", caption, tag("thead", head), tag("tbody", *body), id="all-trials"), "all trials")


def _ordered(standings: Standings) -> list[Trial]:
    """The front first, then what is nearly on it, then all others as they were started."""
    history, of, odds = standings.run.history, standings.of, standings.odds
    ties = [name for name, standing in of.items() if standing == "tie"]
    ties.sort(key=lambda name: -odds[name])
    first = dict.fromkeys([*(trial.trial_id for trial in history.front()), *ties])
    return [history.trials[name] for name in dict.fromkeys([*first, *history.trials])]


def _heading(column: Column) -> Html:
    return tag(
        "th",
        _sorter(column.title),
        scope="col",
        class_="num" if column.figures else None,
        data_setting=column.setting,
        data_stage=column.stage,
    )


def _sorter(title: str) -> Html:
    return tag("button", title, type="button")


def _row(standings: Standings, trial: Trial, columns: list[Column]) -> Html:
    names = ", ".join(standings.pick_names(trial.trial_id))
    cells = [
        tag(
            "td",
            _state(standings, trial) if column.title == "state" else column.cell(trial),
            class_="num" if column.figures else None,
            data_v=column.sort(trial) if column.sort else None,
        )
        for column in columns
    ]
    head = tag("th", trial.trial_id, tag("small", names) if names else None, scope="row")
    return tag("tr", head, *cells, id=trial.trial_id, class_=standings.of[trial.trial_id], data_state=trial.state)


def _state(standings: Standings, trial: Trial) -> Html:
    return tag(
        "span",
        trial.state,
        class_=f"state {standings.of[trial.trial_id]}",
        title=STANDINGS.get(standings.of[trial.trial_id]),
    )


def _columns(standings: Standings) -> list[Column]:
    """What most people look for first, first."""
    history, info = standings.run.history, standings.run.info
    trials = list(history.trials.values())
    objectives = [
        Column(
            f"{metric_label(o.metric, info['data'])} {ARROWS[o.goal]}", _stated(standings, o.metric), _value(o.metric)
        )
        for o in history.objectives
    ]
    tested = dict.fromkeys(name for trial in trials for name in trial.tested if "accuracy" in name)
    return [
        Column("state", lambda trial: trial.state, figures=False),
        *objectives,
        Column("on the front", lambda t: percent(standings.odds.get(t.trial_id, math.nan)), _odds(standings)),
        *(Column(metric_label(name, info["data"]), _stated(standings, name), _value(name)) for name in tested),
        *(_of_setting(s) for s in varied(history, trials)),
        Column("epochs", lambda trial: str(trial.epochs) if trial.kind != "probe" else "probe"),
        Column("time", lambda trial: duration(trial.seconds), lambda trial: trial.seconds),
        Column("bound by", bound, figures=False),
        *(Column(f"{stage} ms", _stage(stage), stage=stage) for stage in STAGES),
        *(Column(title, _figure(name)) for name, title in MEASURES.items()),
        *(Column(title, _share(name), _value(name)) for name, title in SHARES.items()),
        Column("restarts", lambda trial: str(trial.retries or "")),
        Column("reason", lambda trial: trial.reason or "", figures=False),
    ]


def _of_setting(varied: Setting) -> Column:
    name = varied.name
    return Column(
        name,
        lambda trial: setting(trial.config[name]) if trial.config.get(name) is not None else "",
        _number_of(name) if varied.range is not None else None,
        setting=name,
        figures=varied.range is not None or all(value[:1].isdigit() for value in varied.values),
    )


def _number_of(name: str) -> Callable[[Trial], float | str]:
    return lambda trial: trial.config.get(name, math.nan)


def _stated(standings: Standings, metric: str) -> Callable[[Trial], str]:
    return lambda trial: stated(standings.run, trial, metric)


def _value(metric: str) -> Callable[[Trial], float | str]:
    return lambda trial: trial.metrics.get(metric, math.nan)


def _odds(standings: Standings) -> Callable[[Trial], float | str]:
    return lambda trial: standings.odds.get(trial.trial_id, math.nan)


def _stage(stage: str) -> Callable[[Trial], str]:
    return lambda trial: number(stages(trial).get(stage, math.nan))


def _figure(metric: str) -> Callable[[Trial], str]:
    return lambda trial: number(trial.metrics.get(metric, math.nan))


def _share(metric: str) -> Callable[[Trial], str]:
    return lambda trial: percent(trial.metrics.get(metric, math.nan))


# --- filters ----------------------------------------------------------------------------------------------------------


def filter_form(standings: Standings) -> Html:
    """What may be left out of all charts and the table: states, values of settings, words. Of use with scripts only."""
    history = standings.run.history
    trials = list(history.trials.values())
    states = [state for state in STATES if any(trial.state == state for trial in trials)]
    parts = [_choices("state", "state", states), *(_of(setting) for setting in varied(history, trials))]
    search = tag(
        "label", tag("span", "words"), tag("input", type="search", name="words", placeholder="id, setting, reason")
    )
    shown = tag("output", count(len(trials), "trial"), id="shown", aria_live="polite")
    reset = tag("button", "Show all", type="reset")
    return tag(
        "details",
        tag("summary", "Filter ", shown),
        tag("form", *parts, search, reset, id="filter"),
        class_="js filter",
    )


def _of(varied: Setting) -> Html | None:
    if varied.range is None:
        return _choices(varied.name, varied.name, varied.values) if len(varied.values) <= MOST_CHOICES else None
    ends = (("from", "least"), ("to", "most"))
    fields = [
        tag("label", words, tag("input", type="number", step="any", data_setting=varied.name, data_end=end))
        for words, end in ends
    ]
    return tag("fieldset", tag("legend", varied.name), *fields)


def _choices(name: str, title: str, values: list[str] | tuple[str, ...]) -> Html:
    boxes = [
        tag("label", tag("input", type="checkbox", checked=True, data_setting=name, value=value), value)
        for value in values
    ]
    return tag("fieldset", tag("legend", title), *boxes)
