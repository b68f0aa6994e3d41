"""Budget of an ended run that leaves nothing to do, so that a resume need not start Ray."""

from __future__ import annotations

from collections.abc import Sequence

from search.record.events import End, Event
from search.record.run_end import is_wanted_end
from search.record.run_state import RunState
from search.space.space import Space
from search.text.numbers import format_number


def spent_budget(events: Sequence[Event], run_state: RunState, space: Space) -> str | None:
    """Return what is spent of the budget that `space` gives a run which has ended; None: there is something to do.

    A run that was killed or interrupted is not ended, and has at least to write its end. More `repeats` or time for
    `deciding` are something to do.
    """
    last, before, now = events[-1], run_state.budget, space.budget
    if not isinstance(last, End) or not is_wanted_end(last.reason):
        return None
    if now.repeats > before.repeats or now.deciding > before.deciding:
        return None
    used = {"hours": run_state.clock.searching_seconds() / 3600, "gpu_hours": run_state.gpu_seconds() / 3600}
    for name, hours in used.items():
        limit = getattr(now, name)
        if limit is not None and hours >= limit:
            return f"budget.{name} is spent: {format_number(hours)} of {limit:g}"
    from search.advisor.advisor import Advisor  # takes a second to import

    advisor = Advisor(space)
    return None if advisor.replay(events) else advisor.stop_reason
