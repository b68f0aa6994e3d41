"""Neighbour of a configuration: the same but for one setting, and what turns beside it have shown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from search.front.differences import Estimate, log_ratio
from trainables.contract import Layout, Scalar

MIN_GAIN = 0.03  # of the rate; a smaller one is not recommended
PROMISING = 0.01  # logarithm of a ratio, for which a neighbour is measured again
MOST_PROMISING = 3
# Part of a rate's relative deviation by which the ratio of two rates differs some minutes later, too: what slows the
# machine slows not all configurations alike. Measured on two shared virtual cores (results/LOG.md, 2026-11-26).
PART_OF_DRIFT, MOST_DRIFT = 1 / 3, 0.045


@dataclass(eq=False)
class Neighbour:
    """A setting with another value, and the rates with and without it in each round, in units/s."""

    parameter: str
    old: Scalar | None
    new: Scalar
    changes_learning: bool = False
    layout: Layout | None = None  # of the configuration with the new value
    rounds: list[tuple[float, float]] = field(default_factory=list)
    measured_again: bool = False  # after it was found promising
    between: float = 0.0  # variance of the logarithm of the ratio from one time to another, a minute or two later
    reason: str | None = None  # why it cannot run

    @property
    def is_slow_to_start(self) -> bool:
        """True if it takes a minute to start, in which others could be measured: the network is compiled."""
        return self.changed == {"compile": True}

    @property
    def changed(self) -> dict[str, Any]:
        """The setting with its new value."""
        return {self.parameter: self.new}

    @property
    def estimate(self) -> Estimate | None:
        """Logarithm of the rate with the change over that without it; None: too few rounds."""
        found = log_ratio(self.rounds)
        return found and Estimate(found.mean, math.sqrt(found.deviation**2 + self.between))

    @property
    def is_gain(self) -> bool:
        """True if the change surely makes training faster, by enough to be worth it."""
        found = self.estimate
        return self.measured_again and found is not None and found.low > 0 and found.ratio[0] >= 1 + MIN_GAIN

    def again(self) -> Neighbour:
        """Return it without its rounds, to be measured again: what was chosen for its luck must not keep it."""
        return replace(self, rounds=[], measured_again=True)


def promising(tried: Iterable[Neighbour]) -> list[Neighbour]:
    """Return those that may be a gain, the largest first."""
    found = [(estimate.mean, each) for each in tried if (estimate := each.estimate)]
    ordered = sorted(found, key=lambda pair: -pair[0])
    return [each for mean, each in ordered if mean > PROMISING][:MOST_PROMISING]


def gains(tried: Iterable[Neighbour]) -> list[Neighbour]:
    """Return the changes that surely help by enough, the largest gain first."""
    return promising(each for each in tried if each.is_gain)


def updated(
    tried: Iterable[Neighbour], again: Mapping[tuple[str, Scalar], Neighbour], rate_deviation: float
) -> list[Neighbour]:
    """Return the neighbours; a second measurement replaces the first.

    Where the two differ by more than their errors, the rest is drift between them: a shared machine gives a second
    thread sometimes more and sometimes less. It enters the intervals of all. So few pairs tell little of it, so its
    lower bound is PART_OF_DRIFT of the `rate_deviation`, at most MOST_DRIFT. That is the
    relative standard error of one measurement of the rate, the machine's drift included.
    """
    pairs = [(each, again.get((each.parameter, each.new))) for each in tried]
    estimates = [(each.estimate, later.estimate) for each, later in pairs if later is not None]
    known = [(one, two) for one, two in estimates if one and two]
    excess = [(one.mean - two.mean) ** 2 - one.deviation**2 - two.deviation**2 for one, two in known]
    between = max(min(PART_OF_DRIFT * rate_deviation, MOST_DRIFT) ** 2, sum(excess) / len(excess) if excess else 0.0)
    return [replace(each if later is None else later, between=between) for each, later in pairs]
