"""Reasons for the end of a run: its search came to an end, or it was interrupted and can go on."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from search.record.run_lock import is_locked

BY_SIGNAL = "interrupted by "  # how the reason of such an end begins
GAVE_UP = "Ray Tune gave up"  # reason of an end that is no decision of the search


def is_wanted_end(reason: str | None) -> bool:
    """Return whether a run that ended for this reason, None if it did not, has come to the end of its search."""
    return reason is not None and not reason.startswith(BY_SIGNAL) and reason != GAVE_UP


def run_status(folder: Path, reason: str | None) -> Literal["running", "ended", "interrupted"]:
    """Return the status of the run in a folder; `reason`: of its end, None if it has none."""
    if is_locked(folder):
        return "running"
    return "ended" if is_wanted_end(reason) else "interrupted"
