"""Where a picture's time goes in each trial, as bars."""

from __future__ import annotations

from search.page.chart import key, percent
from search.page.markup import Html, joined, tag
from search.page.standing import Standings
from search.record.history import Trial
from search.report.causes import STAGES, bound, stages
from search.report.sweeps import LEARNING
from search.text.wording import count, number, short_settings
from search.text.wording import percent as percent_words

MOST_BARS = 24


def stage_bars(standings: Standings) -> Html | None:
    """A bar for each trial whose steps were profiled, the fastest first; None: none was."""
    history = standings.run.history
    known = sorted((t for t in history.trials.values() if sum(stages(t).values()) > 0), key=_microseconds)
    if not known:
        return None
    shown = _chosen(standings, known)
    longest = max(map(_microseconds, shown))
    varying = [name for name in history.varying(known) if name not in LEARNING]
    rows = [_row(standings, trial, longest, short_settings(trial.config, varying)) for trial in shown]
    used = [stage for stage in STAGES if any(stages(t).get(stage) for t in shown)]
    left = len(known) - len(shown)
    rest = f" {count(left, 'slower trial')} in the table of all trials only." if left else ""
    return joined(
        tag("p", f"Microseconds per picture, from profiled steps of their own; the fastest first.{rest}"),
        key((stage, stage) for stage in used),
        tag("ol", *rows, class_="bars"),
    )


def _chosen(standings: Standings, known: list[Trial]) -> list[Trial]:
    """All of the front, and the fastest others."""
    front = [t for t in known if standings.of[t.trial_id] == "front"]
    others = [t for t in known if standings.of[t.trial_id] != "front"]
    return sorted([*front, *others[: max(MOST_BARS - len(front), 0)]], key=_microseconds)


def _microseconds(trial: Trial) -> float:
    """Of a picture, over all stages; of a step, where the configuration does not say how many pictures that is."""
    size = trial.config.get("batch_size")
    return 1000 * sum(stages(trial).values()) / (size if type(size) is int and size > 0 else 1)


def _row(standings: Standings, trial: Trial, longest: float, settings: str) -> Html:
    row, whole = stages(trial), sum(stages(trial).values())
    scale = 100 * _microseconds(trial) / longest
    parts, at = [], 0.0
    for stage, value in row.items():
        width = scale * value / whole
        parts += [tag("rect", x=percent(at), width=percent(width), height="100%", class_=stage)] if value else []
        at += width
    words = ", ".join(f"{stage} {percent_words(value / whole)}" for stage, value in row.items() if value)
    by = f", bound by {bound(trial)}" if trial.verdict else ""
    name = "front" if standings.of[trial.trial_id] == "front" else None
    return tag(
        "li",
        tag("a", trial.trial_id, href=f"#{trial.trial_id}", class_=name),
        tag("svg", *parts, role="img", aria_label=f"{words}{by}", width="100%", height="100%"),
        tag("span", number(_microseconds(trial)), class_="num"),
        tag("small", f"{settings}{f' · {bound(trial)}' if trial.verdict else ''}"),
        data_t=trial.trial_id,
    )
