"""Rates of a configuration and its neighbours, measured in turns beside each other."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator, Sequence

from search.front.differences import FEWEST_ROUNDS, MOST_ROUNDS
from search.front.neighbour import Neighbour, promising, updated
from search.train.turn_group import TurnError, TurnGroup
from trainables.contract import Layout

FEWEST_AT_A_TIME, MOST_AT_A_TIME = 3, 10  # changes in memory together
SECONDS_OF_A_CHANGE, STEPS_OF_A_CHANGE = 5.0, 24  # to start, and of its turns
SCREENING_SHARE = 0.6  # of the time; the rest measures the promising ones again
PATIENCE_SECONDS = 60.0  # at least, until a comparison ends that has not enough rounds

Members = tuple[TurnGroup, list[Neighbour | None]]
Clock = Callable[[], float]
Told = Callable[[str], None]


class Comparisons:
    """Comparisons of one configuration with its neighbours within some seconds."""

    def __init__(
        self,
        arguments: Sequence[str],
        layout: Layout,
        seconds: float,
        *,
        rate_deviation: float = 0.0,
        step_seconds: float = 0.0,
        together: bool = True,
        most_at_a_time: int = MOST_AT_A_TIME,
        told: Told = lambda text: None,
        start_group: Callable[..., TurnGroup] = TurnGroup,
        clock: Clock = time.monotonic,
    ) -> None:
        """`arguments`: of `trainables.train` for the configuration, which has that `layout`; `told`: hears progress.

        `rate_deviation`: relative standard error of one measurement of the configuration's rate.
        `step_seconds`: of the configuration, as far as it is known; so many changes are tried at a time that their
        turns fit into the time. `together`: configurations of one layout can have turns in one process;
        `most_at_a_time`: changes that fit into memory beside the configuration.
        """
        self._arguments, self._layout = arguments, layout
        self._start_group, self._clock, self._told = start_group, clock, told
        self._together, self._rate_deviation = together, rate_deviation
        self._most = min(MOST_AT_A_TIME, most_at_a_time)
        self._seconds_of_a_change = SECONDS_OF_A_CHANGE + STEPS_OF_A_CHANGE * step_seconds
        self._start, self._seconds = clock(), seconds
        self._rng = random.Random(0)
        self.rate = 0.0  # of the configuration, in the last round

    def run(self, tried: Sequence[Neighbour]) -> list[Neighbour]:
        """Try all neighbours, then measure the promising ones again; return them with their rounds.

        Raises:
            TurnError: the configuration itself cannot run here.
        """
        end = SCREENING_SHARE * self._seconds
        most = min(self._most, max(FEWEST_AT_A_TIME, int(end / self._seconds_of_a_change)))
        waiting = list(tried)
        while waiting and self._clock() < self._start + end:
            alike = [each for each in waiting if each.is_slow_to_start == waiting[0].is_slow_to_start]
            together, waiting = alike[:most], [each for each in waiting if each not in alike[:most]]
            self.compare(together, end, FEWEST_ROUNDS)
        again = [each.again() for each in promising(tried)]
        if again:
            # ending where the orders are decided would favour those who are ahead by luck
            self.compare(again, self._seconds, MOST_ROUNDS, until_decided=False)
        return updated(
            tried, {(each.parameter, each.new): each for each in again if each.estimate}, self._rate_deviation
        )

    def compare(self, tried: Sequence[Neighbour], end: float, rounds: int, *, until_decided: bool = True) -> None:
        """Take turns for so many rounds, or until all orders are decided, or until second `end` after the start.

        Raises:
            TurnError: the configuration itself cannot run here.
        """
        with contextlib.ExitStack() as stack:
            groups = self._groups(stack, tried)
            latest = self._clock() + max(self._seconds, PATIENCE_SECONDS)  # starting may have taken all the time
            for number in range(1, rounds + 1):
                self._round(stack, groups)
                can_run = [each for each in tried if each.reason is None]
                found = [each.estimate for each in can_run]
                self._told(f"round {number}, {len(can_run)} changes")
                decided = all(each is not None and each.is_decided for each in found)
                if until_decided and number >= FEWEST_ROUNDS and decided:
                    return
                now = self._clock()
                if now >= self._start + end and (number >= FEWEST_ROUNDS or now >= latest):
                    return

    def _groups(self, stack: contextlib.ExitStack, tried: Sequence[Neighbour]) -> list[Members]:
        """Start processes for each layout; those with the layout of the configuration itself have it, too (None)."""
        if not self._together:
            return [group for member in (None, *tried) for group in self._started(stack, [member])]
        by_layout: dict[Layout, list[Neighbour | None]] = {self._layout: [None]}
        for each in tried:
            by_layout.setdefault(each.layout or self._layout, []).append(each)
        return [group for members in by_layout.values() for group in self._started(stack, members)]

    def _started(
        self, stack: contextlib.ExitStack, members: list[Neighbour | None]
    ) -> Iterator[tuple[TurnGroup, list[Neighbour | None]]]:
        """Start processes for the members that can run; where it is not known which cannot, halves are tried."""
        if not members:
            return
        changes = [{} if each is None else each.changed for each in members]
        self._told(f"starting {len(members)} configurations")
        try:
            group = self._start_group(self._arguments, changes)
        except TurnError as error:
            if len(members) == 1 or error.place is not None:
                self._drop(members, error)
                yield from self._started(stack, members)
            else:
                middle = len(members) // 2
                yield from self._started(stack, members[:middle])
                yield from self._started(stack, members[middle:])
            return
        stack.callback(group.close)
        yield group, members

    def _drop(self, members: list[Neighbour | None], error: TurnError) -> None:
        """Take the member out that cannot run.

        Raises:
            TurnError: it is the configuration itself.
        """
        member = members.pop(error.place or 0)
        if member is None:
            raise error
        member.reason = str(error)

    def _round(self, stack: contextlib.ExitStack, groups: list[Members]) -> None:
        """Have all configurations take a turn, the layouts in random order."""
        rates: list[tuple[Neighbour | None, float]] = []
        waiting = self._rng.sample(groups, len(groups))
        while waiting:
            group, members = waiting.pop(0)
            try:
                rates += zip(members, group.round(), strict=True)
            except TurnError as error:
                groups.remove((group, members))
                if error.place is None and None not in members:
                    for neighbour in filter(None, members):
                        neighbour.reason = str(error)
                    continue
                self._drop(members, error)
                again = list(self._started(stack, members))  # the others
                groups += again
                waiting += again
        (self.rate,) = (rate for member, rate in rates if member is None)
        for member, rate in rates:
            if member is not None:
                member.rounds.append((rate, self.rate))
