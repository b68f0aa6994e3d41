"""Rates of a configuration and its neighbours, measured in turns beside each other."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from search.advise.neighbours import Change
from search.advise.side import Side, TurnError
from search.front.differences import Estimate, log_ratio
from trainables.contract import Layout

MOST_AT_A_TIME = 10  # changes in memory together
SCREENING_SHARE = 0.6  # of the time; the rest measures the promising ones again
MOST_PROMISING = 3
MIN_GAIN = 0.03  # of the rate; a smaller one is not recommended
PROMISING = 0.01  # logarithm of a ratio, as screened
FEWEST_ROUNDS, MOST_ROUNDS = 6, 40
LATEST = 1.5  # times the time given, after which a comparison ends without enough rounds

Clock = Callable[[], float]
Told = Callable[[str], None]


@dataclass
class Tried:
    """A change and the rates with and without it in each round, in units/s; `reason`: why it cannot be tried."""

    change: Change
    rounds: list[tuple[float, float]] = field(default_factory=list)
    reason: str | None = None
    measured_again: bool = False  # after it was found promising

    @property
    def estimate(self) -> Estimate | None:
        """Logarithm of the rate with the change over that without it; None: too few rounds."""
        return log_ratio(self.rounds)

    @property
    def is_gain(self) -> bool:
        """True if the change surely makes training faster, by enough to be worth it."""
        found = self.estimate
        return self.measured_again and found is not None and found.low > 0 and found.ratio[0] >= 1 + MIN_GAIN


class Comparisons:
    """Comparisons of one configuration with its neighbours within some seconds."""

    def __init__(
        self,
        arguments: Sequence[str],
        layout: Layout,
        seconds: float,
        *,
        most_at_a_time: int | None = None,
        told: Told = lambda text: None,
        side: Callable[..., Side] = Side,
        clock: Clock = time.monotonic,
    ) -> None:
        """`arguments`: of `trainables.train` for the configuration, which has that `layout`; `told`: hears progress.

        `most_at_a_time`: changes that fit into memory beside the configuration; None: not known.
        """
        self._arguments, self._layout, self._side, self._clock, self._told = arguments, layout, side, clock, told
        self._most = min(MOST_AT_A_TIME, most_at_a_time or MOST_AT_A_TIME)
        self._start, self._seconds = clock(), seconds
        self._rng = random.Random(0)
        self.rate = 0.0  # of the configuration, in the last round

    def run(self, changes: Sequence[Change]) -> list[Tried]:
        """Try all changes, then measure the promising ones again: what was chosen for its luck does not keep it.

        Raises:
            TurnError: the configuration itself cannot run here.
        """
        tried = [Tried(change) for change in changes]
        for i in range(0, len(tried), self._most):
            if self._clock() >= self._start + SCREENING_SHARE * self._seconds:
                break
            self._compare(tried[i : i + self._most], SCREENING_SHARE * self._seconds, FEWEST_ROUNDS)
        known = [(found.mean, each) for each in tried if (found := each.estimate) and found.mean > PROMISING]
        promising = [each for _, each in sorted(known, key=lambda pair: -pair[0])[:MOST_PROMISING]]
        if promising:
            again = [Tried(each.change, measured_again=True) for each in promising]
            self._compare(again, self._seconds, MOST_ROUNDS)
            for each in again:
                if each.estimate is not None:
                    tried[next(i for i, old in enumerate(tried) if old.change == each.change)] = each
        return tried

    def _compare(self, tried: Sequence[Tried], end: float, rounds: int) -> None:
        """Take turns for so many rounds, or until all orders are decided or the time is up."""
        with contextlib.ExitStack() as stack:
            sides = self._sides(stack, tried)
            for number in range(1, rounds + 1):
                self._round(sides)
                can_run = [each for each in tried if each.reason is None]
                found = [each.estimate for each in can_run]
                self._told(f"round {number}, {len(can_run)} changes")
                if number >= FEWEST_ROUNDS and all(each is not None and each.is_decided for each in found):
                    return
                late = self._clock() - self._start - end
                if late >= 0 and (number >= FEWEST_ROUNDS or late >= (LATEST - 1) * self._seconds):
                    return

    def _sides(self, stack: contextlib.ExitStack, tried: Sequence[Tried]) -> list[tuple[Side, list[Tried | None]]]:
        """Start processes for each layout; those with the layout of the configuration itself have it, too (None)."""
        groups: dict[Layout, list[Tried | None]] = {self._layout: [None]}
        for each in tried:
            groups.setdefault(each.change.layout, []).append(each)
        return [side for members in groups.values() for side in self._started(stack, members)]

    def _started(
        self, stack: contextlib.ExitStack, members: list[Tried | None]
    ) -> Iterator[tuple[Side, list[Tried | None]]]:
        """Start processes for the members that can run; where it is not known which cannot, halves are tried."""
        if not members:
            return
        changes = [{} if each is None else {each.change.parameter: each.change.new} for each in members]
        self._told(f"starting {len(members)} configurations")
        try:
            side = self._side(self._arguments, changes)
        except TurnError as error:
            if len(members) == 1 or error.place is not None:
                self._drop(members, error)
                yield from self._started(stack, members)
            else:
                middle = len(members) // 2
                yield from self._started(stack, members[:middle])
                yield from self._started(stack, members[middle:])
            return
        stack.callback(side.close)
        yield side, members

    def _drop(self, members: list[Tried | None], error: TurnError) -> None:
        """Take the member out that cannot run.

        Raises:
            TurnError: it is the configuration itself.
        """
        member = members.pop(error.place or 0)
        if member is None:
            raise error
        member.reason = str(error)

    def _round(self, sides: list[tuple[Side, list[Tried | None]]]) -> None:
        """Have all configurations take a turn, the layouts in random order."""
        rates: list[tuple[Tried | None, float]] = []
        for side, members in self._rng.sample(sides, len(sides)):
            try:
                rates += zip(members, side.round(), strict=True)
            except TurnError as error:
                sides.remove((side, members))
                for member in members:
                    if member is None:
                        raise
                    member.reason = str(error)
        (self.rate,) = (rate for member, rate in rates if member is None)
        for member, rate in rates:
            if member is not None:
                member.rounds.append((rate, self.rate))
