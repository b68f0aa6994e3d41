"""Head of the page: the run's name and state, and while it is running its budget, its trials and the time left."""

from __future__ import annotations

from datetime import UTC, datetime

from markupsafe import Markup

from search.page.render import render
from search.record.activity import activity, phase
from search.record.budget_use import budget_use
from search.record.dataframes import Run
from search.record.run_end import is_wanted_end
from search.text.durations import format_duration, rough_duration
from search.text.numbers import first_few

MAX_RUNNING = 4  # trials that are named


def heading(run: Run, now: float | None) -> Markup:
    """Render the head. `now`: for a run that is still running, the time in seconds since 1970."""
    run_state, began = run.state, datetime.fromtimestamp(run.info.time, UTC)
    budget = budget_use(run_state, now) if now else None
    running = [trial for trial in run_state.trials.values() if trial.state == "running"]
    activities = first_few([f"{trial.trial_id} ({activity(run_state, trial)})" for trial in running], MAX_RUNNING)
    counts = run_state.shown_counts(now is not None)
    return render(
        "heading.html",
        name=run.name,
        running=now is not None,
        state="running" if now else "ended" if is_wanted_end(run_state.end) else "interrupted",
        trials=", ".join(f"{number} {state}" for state, number in counts.items()) or "no trial yet",
        time=f"{began:%Y-%m-%d %H:%M} UTC, {format_duration(run_state.clock.active_seconds(now))}",
        budget=budget,
        left=f"{rough_duration(budget.seconds_left)} left" if budget and budget.seconds_left else "finishing",
        activities=", ".join(activities) or phase(run_state),
    )
