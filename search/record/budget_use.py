"""Share of a run's budget that is used, and the time left at the pace so far."""

import math
from dataclasses import dataclass, replace

from search.record.run_clock import AFTER_SEARCH
from search.record.run_state import RunState
from search.text.durations import format_duration
from search.text.numbers import format_number, plural


@dataclass(frozen=True)
class BudgetUse:
    """Use of the budget that will end first."""

    text: str  # "9 of 24 trials"
    fraction: float
    seconds_left: float


def budget_use(run_state: RunState, now: float | None = None) -> BudgetUse | None:
    """Return the use of the budget that ends first at the pace so far; None before the first measurement.

    `now`: None stands for the time of the last event.
    A running trial counts by the share of its epochs that are measured, a stopped trial as a whole one.
    """
    if not run_state.trials:
        return None
    budget = run_state.budget
    trials = run_state.counted()
    ended = [t for t in trials if t.state != "running"]
    epochs = sum(t.epochs for t in trials)
    parts = sum(t.epochs / run_state.length(t) for t in trials if t.state == "running")
    used = run_state.clock.searching_seconds(now)
    # starting Ray happens once, so it says nothing about the trials to come
    working = max(used - run_state.clock.seconds_before_trials, 0.0)
    most, most_epochs = _max_trials(run_state), budget.total_epochs
    amounts = (
        (len(ended) + parts, most, f"{len(ended)} of {most} trials"),
        (epochs, most_epochs, f"{epochs} of {most_epochs} epochs"),
    )
    on_trials = working * _share_of_trials(run_state)
    known = [
        BudgetUse(text, min(done / limit, 1.0), max(limit - done, 0.0) * on_trials / done)
        for done, limit, text in amounts
        if limit and done
    ]
    if (gpu_hours := budget.gpu_hours) and (spent := run_state.gpu_seconds()):
        limit = gpu_hours * 3600
        text = f"{plural(len(ended), 'trial')}, {format_number(spent / 3600)} of {gpu_hours:g} GPU hours"
        known.append(BudgetUse(text, min(spent / limit, 1.0), max(limit - spent, 0.0) * working / spent))
    if hours := budget.hours:
        text = f"{plural(len(ended), 'trial')}, {format_duration(used)} of {format_duration(hours * 3600)}"
        known.append(BudgetUse(text, min(used / (hours * 3600), 1.0), max(hours * 3600 - used, 0.0)))
    use = min(known, key=lambda each: each.seconds_left, default=None)
    if use and run_state.latest in AFTER_SEARCH:  # the budget does not tell how long the front is measured
        return replace(use, seconds_left=0.0)
    return use


def _share_of_trials(run_state: RunState) -> float:
    """Return the trials' share of the time on workers; the rest is of probes that prepare them, most before the first.

    How many more probes there will be is not known, so that the time left has none.
    """
    trials, probes = (
        math.fsum(trial.seconds for trial in some if trial.seconds > 0)
        for some in (run_state.counted(), run_state.preparing_probes())
    )
    return trials / (trials + probes) if trials else 1.0


def _max_trials(run_state: RunState) -> int | None:
    """Return the largest number of trials that the run can have; None if it is not bounded."""
    limits = (run_state.budget.trials, run_state.info.grid_points, run_state.info.num_configs)
    return min((limit for limit in limits if limit), default=None)
