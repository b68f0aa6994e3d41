"""How much of a run's budget is spent, and when it will be gone at the pace so far."""

from __future__ import annotations

from dataclasses import dataclass

from search.record.history import History
from search.text.wording import count, duration


@dataclass(frozen=True)
class Spent:
    """How much of the budget that will end first is spent."""

    text: str  # "9 of 24 trials"
    fraction: float
    seconds_left: float


def spent(history: History, now: float) -> Spent | None:
    """The budget that ends first at the pace so far; None while there is nothing to judge by.

    A trial under way counts for the part of its epochs that it has measured, a trial cut short as a whole one.
    """
    if not history.trials:
        return None
    budget = history.budget
    trials = history.counted()
    ended = [t for t in trials if t.state != "running"]
    epochs = sum(t.epochs for t in trials)
    parts = sum(t.epochs / budget["epochs"] for t in trials if t.state == "running")
    used = history.active_seconds(now)
    working = max(
        used - (next(iter(history.trials.values())).started_at - history.info["time"]), 0.0
    )  # Ray's start is not paid for again
    most = most_trials(history)
    amounts = {
        "trials": (len(ended) + parts, most, f"{len(ended)} of {most} trials"),
        "total_epochs": (epochs, budget.get("total_epochs"), f"{epochs} of {budget.get('total_epochs')} epochs"),
    }
    known = [
        Spent(text, min(done / limit, 1.0), max(limit - done, 0.0) * working / done)
        for done, limit, text in amounts.values()
        if limit and done
    ]
    if hours := budget.get("hours"):
        text = f"{count(len(ended), 'trial')}, {duration(used)} of {duration(hours * 3600)}"
        known.append(Spent(text, min(used / (hours * 3600), 1.0), max(hours * 3600 - used, 0.0)))
    return min(known, key=lambda each: each.seconds_left, default=None)


def most_trials(history: History) -> int | None:
    """How many trials there can be at most; None: that is not bounded."""
    limits = (history.budget.get("trials"), history.info.get("grid_points"))
    return min((limit for limit in limits if limit), default=None)
