"""Wall time of a run by the times of its events, without the gaps between its processes."""

from __future__ import annotations

import math
from collections.abc import Callable

from search.record.events import Again, BesideNeighbour, End, Event, OnTestSet, Opening, Repeat, Resume, Start, Turn

DECIDING = (Again, BesideNeighbour, Turn)  # events of the time after the search
AFTER_SEARCH = (*DECIDING, Repeat, OnTestSet)


class RunClock:
    """Seconds of a run in all, and those of its parts."""

    def __init__(self) -> None:
        self.seconds_before_trials = math.nan  # such as for the start of Ray; NaN: there is no trial yet
        self.deciding_seconds = self.ending_seconds = 0.0  # of the active ones: `DECIDING`, `AFTER_SEARCH`
        self._seconds_before = 0.0  # of the processes before this one
        self._resumed_at = self._last_at = math.nan

    def advance(self, event: Event, is_searching: Callable[[], bool]) -> None:
        """Move on to an event; `is_searching` tells whether a trial is running after it, or none was started."""
        if isinstance(event, Opening | Resume):  # the time between two processes is not counted
            self._seconds_before += max(0.0, self._last_at - self._resumed_at)
            self._resumed_at = event.time
        if isinstance(event, Start) and math.isnan(self.seconds_before_trials):
            self.seconds_before_trials = self.active_seconds(event.time)
        # a first turn has the start of a process in it, which is little of a training's time
        covered = isinstance(event, Again | End) or self._last_at > self._resumed_at
        if isinstance(event, (*AFTER_SEARCH, End)) and covered and not is_searching():
            passed = max(0.0, event.time - self._last_at)
            self.ending_seconds += passed
            # an interruption counts for what takes the longest
            self.deciding_seconds += passed * isinstance(event, (*DECIDING, End))
        self._last_at = event.time

    def active_seconds(self, now: float | None = None) -> float:
        """Wall time of the run without the gaps between its processes, up to the last event or to `now`."""
        since = (self._last_at if now is None else now) - self._resumed_at
        return self._seconds_before + (0.0 if since < 0 else since)  # below zero: a clock was set back

    def searching_seconds(self, now: float | None = None) -> float:
        """The `active_seconds` that `budget.hours` counts: without what follows the search."""
        return self.active_seconds(now) - self.ending_seconds
