"""The head of the page: which run, how it stands, and while it goes on what it does and how long it will."""

from __future__ import annotations

from datetime import UTC, datetime

from search.page.markup import Html, joined, tag
from search.record.history import History
from search.results import Run
from search.terminal.pace import spent
from search.text.wording import about, duration

MOST_RUNNING = 4  # trials that are named


def heading(run: Run, now: float | None) -> Html:
    """`now`: of a run that goes on, the time, in seconds since 1970."""
    history, began = run.history, datetime.fromtimestamp(run.info["time"], UTC)
    states = ", ".join(f"{total} {state}" for state, total in history.counts().items() if total) or "no trial yet"
    ended = "going on" if now else "ended" if history.end else "not ended, or interrupted"
    took = f"{began:%Y-%m-%d %H:%M} UTC, {duration(history.active_seconds(now))}"
    status = tag("b", ended, class_="going-on" if now else None)
    return joined(
        tag("p", "Training search", class_="over"),
        tag("h1", run.name),
        tag("p", status, f" · {states} · {took}", class_="status"),
        *(_going_on(history, now) if now else ()),
    )


def _going_on(history: History, now: float) -> list[Html]:
    """The budget, what runs, and when the page was read."""
    parts = []
    if found := spent(history, now):
        left = f"{about(found.seconds_left)} left" if found.seconds_left else "finishing"
        bar = tag("progress", value=round(found.fraction, 3), max=1, aria_label="of the budget spent")
        parts.append(tag("p", bar, f" {found.text} · {left}", class_="status"))
    if running := _running(history):
        parts.append(tag("p", f"Now: {running}", class_="status"))
    pause = tag("button", "Pause", type="button", id="pause")
    return [*parts, tag("p", pause, tag("span", id="age"), class_="js live")]


def _running(history: History) -> str:
    from search.terminal.now import doing  # it needs rich, which who reads an ended run may not have

    running = [trial for trial in history.trials.values() if trial.state == "running"]
    named = [f"{trial.trial_id} ({doing(history, trial)})" for trial in running[:MOST_RUNNING]]
    more = len(running) - len(named)
    return ", ".join([*named, *([f"{more} more"] if more else [])])
