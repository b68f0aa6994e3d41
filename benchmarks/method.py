"""Interface of the search methods that are compared, and random search, the simplest of them."""

from __future__ import annotations

import itertools
from typing import Literal, Protocol

import numpy as np
from problems import Point, Problem, sample

from search.advisor.proposal import Proposal

End = Literal["complete", "stopped", "infeasible"]
Setting = Literal["full", "short", "noisy", "four"]  # see `search_quality.py`


class Method(Protocol):
    """Search in progress."""

    def propose(self) -> Proposal | None:
        """Return the next trial, or None at the end."""
        ...

    def observe(self, trial_id: str, epoch: int, point: Point, half: float = 0.0) -> bool:
        """Return whether the trial continues after this epoch.

        `half`: half of the throughput's 95% interval; 0: it is exact. Only the Advisor has a use for it.
        """
        ...

    def finish(self, trial_id: str, end: End, point: Point) -> None:
        """Tell how the trial ended, and its last point; (0, 0) if it cannot run."""
        ...


class Random:
    """Random search."""

    def __init__(self, problem: Problem, runs: int, seed: int, setting: Setting) -> None:
        self._problem, self._generator, self._numbers = problem, np.random.default_rng(seed), itertools.count()

    def propose(self) -> Proposal:
        """See `Method`."""
        return Proposal(f"{next(self._numbers)}", sample(self._problem, self._generator))

    def observe(self, trial_id: str, epoch: int, point: Point, half: float = 0.0) -> bool:
        """See `Method`."""
        return True

    def finish(self, trial_id: str, end: End, point: Point) -> None:
        """See `Method`."""


def grace_epochs(problem: Problem) -> int:
    """Return the first epoch at which a trial may stop: 1/52 of the epochs, one epoch on lcbench.

    The default of both methods, 1 of 428 epochs, stops trials after almost no training; and MOASHA, which sorts all
    trials of a rung whenever one arrives, would take hours for the thousands of trials.
    """
    return max(1, problem.max_epoch // 52)
