"""Which rank a trial's end is put down to: the one that went wrong first, not those that then waited for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from search.execution.serve import Ended

MOST_WORDS = 160  # of what a rank says that only noticed


def verdict(ends: Mapping[int, Ended], processes: int, timeout: float) -> Ended:
    """What the ranks' ends, in the order in which they came, amount to; a rank without one has not ended.

    `timeout`: how many seconds the ranks wait for each other before they give up.
    """
    for rank, end in ends.items():
        if end.state != "complete" and not end.peer_lost:
            return replace(end, reason=f"rank {rank}: {end.reason}" if processes > 1 else end.reason)
    noticed = "; ".join(
        f"rank {rank}: {_short(end.reason or end.state)}"
        for rank, end in sorted(ends.items())
        if end.state != "complete"
    )
    silent = [rank for rank in range(processes) if rank not in ends]
    if silent:
        return Ended("failed", _joined(f"{named(silent)} did not answer the other ranks for {timeout:.0f} s", noticed))
    if noticed:
        return Ended("failed", _joined(f"the ranks waited for each other in vain, up to {timeout:.0f} s", noticed))
    return ends[0]


def in_step(ends: Mapping[int, Ended]) -> bool:
    """Whether ranks that have all ended may work together again: no collective operation can be half done."""
    first, *others = ends.values()
    if not others or all(end.state == "complete" for end in ends.values()):
        return True
    # what all find infeasible alike, they found before they worked together, or at the same place
    return first.state == "infeasible" and all((e.state, e.reason) == (first.state, first.reason) for e in others)


def named(ranks: list[int]) -> str:
    """`rank 1`, `ranks 1 and 3`."""
    words = [str(rank) for rank in ranks]
    return f"rank {words[0]}" if len(words) == 1 else f"ranks {', '.join(words[:-1])} and {words[-1]}"


def _joined(*parts: str) -> str:
    return "; ".join(filter(None, parts))


def _short(text: str) -> str:
    return text if len(text) <= MOST_WORDS else f"{text[: MOST_WORDS - 2]} …"
