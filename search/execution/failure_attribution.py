"""Attribution of a trial's failure to the rank that failed first, not to those that then waited for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from search.execution.protocol import Ended
from search.text.numbers import join_words

MAX_REASON_LENGTH = 160  # of a rank that only noticed the failure


def attribute_failure(ends: Mapping[int, Ended], processes: int, timeout_seconds: float) -> Ended:
    """Return the end of the trial, given those of its ranks in order of arrival; a rank without one has not ended.

    `timeout_seconds`: how long the ranks wait for each other.
    """
    for rank, end in ends.items():
        if end.state != "complete" and not end.peer_lost:
            return replace(end, reason=f"rank {rank}: {end.reason}" if processes > 1 else end.reason)
    noticed = [(rank, end.reason or end.state) for rank, end in sorted(ends.items()) if end.state != "complete"]
    reasons = [
        f"rank {rank}: {reason if len(reason) <= MAX_REASON_LENGTH else f'{reason[: MAX_REASON_LENGTH - 2]} …'}"
        for rank, reason in noticed
    ]
    if silent := [rank for rank in range(processes) if rank not in ends]:
        what = f"{rank_names(silent)} did not answer the other ranks for {timeout_seconds:.0f} s"
    elif noticed:
        what = f"the ranks waited for each other without an answer, up to {timeout_seconds:.0f} s"
    else:
        return ends[0]
    return Ended("failed", "; ".join([what, *reasons]))


def are_in_step(ends: Mapping[int, Ended]) -> bool:
    """Return whether ranks that have all ended can work together again.

    No collective operation is half done, and no process has lost its device.
    """
    if any(end.process_lost for end in ends.values()):
        return False
    first, *others = ends.values()
    if not others or all(end.state == "complete" for end in ends.values()):
        return True
    # all found the same infeasible: before they worked together, or at the same place
    return first.state == "infeasible" and all((e.state, e.reason) == (first.state, first.reason) for e in others)


def rank_names(ranks: Sequence[int]) -> str:
    """Return `rank 1` or `ranks 1 and 3`."""
    return f"rank{'s' * (len(ranks) > 1)} {join_words([str(rank) for rank in ranks])}"
