"""Rates of configurations that several runs share, measured in turns: the training of each run beside the others'."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from search.compare.comparison import Shared, Side
from search.exit_codes import InputError
from search.front.differences import FEWEST_ROUNDS, MOST_ROUNDS, Estimate, log_ratio
from search.record.defaults import changed_defaults
from search.space.machine import Machine
from search.text.configurations import assignments
from search.text.numbers import join_words
from search.train.arguments import same_data
from search.train.turn_group import TurnError, TurnGroup

LEAST_SECONDS = 20.0  # of a configuration: to start its trainings, and of some rounds

Clock = Callable[[], float]


@dataclass(frozen=True)
class Settled:
    """Shared configuration after its turns. `ratios`: logarithms of the rate over that of the first run, by letter."""

    config: dict[str, Any]
    rounds: int
    ratios: dict[str, Estimate]
    reason: str | None = None  # why there are none


def trainings(named: Sequence[Side], here: Machine) -> list[list[str]]:
    """Return the arguments of `trainables.train` for the training of each run, with defaults that have changed since.

    Raises:
        InputError: a run is from another machine, or nothing that turns could tell apart differs.
    """
    for side in named:
        if differs := side.run.info.machine.difference(here):
            raise InputError(f"--settle: {side.letter} ({side.run.name}) is from another machine: {differs}")
    found = [[*same_data(side.run, side.run.folder), *assignments(changed_defaults(side.run.info))] for side in named]
    sources = {(side.run.info.source, *arguments[2:]) for side, arguments in zip(named, found, strict=True)}
    if len(sources) == 1:
        letters = join_words([side.letter for side in named])
        what = f"{letters} train the same code on the same data, so their shared configurations cannot differ here"
        raise InputError(f"--settle: {what}; what differed were the conditions when they ran")
    return found


def settle(
    rows: Sequence[Shared],
    letters: Sequence[str],
    arguments: Sequence[Sequence[str]],
    seconds: float,
    start_group: Callable[..., TurnGroup] = TurnGroup,
    clock: Clock = time.monotonic,
) -> list[Settled]:
    """Measure as many of the configurations as the time allows, each until its orders against the first are decided.

    `arguments`: of the training of each run in `letters`.
    """
    end, found = clock() + seconds, list[Settled]()
    for place, row in enumerate(rows):
        left = end - clock()
        if left < LEAST_SECONDS:
            break
        share = max(LEAST_SECONDS, left / (len(rows) - place))
        sides = {letter: words for letter, words in zip(letters, arguments, strict=True) if letter in row.readings}
        found.append(_in_turns(row, sides, clock() + share, start_group, clock))
    return found


def _in_turns(
    row: Shared,
    sides: dict[str, Sequence[str]],
    end: float,
    start_group: Callable[..., TurnGroup],
    clock: Clock,
) -> Settled:
    rng, base, rounds = random.Random(0), next(iter(sides)), list[dict[str, float]]()
    settings = assignments({name: value for name, value in row.config.items() if value is not None})
    ratios: dict[str, Estimate] = {}
    try:
        with ExitStack() as stack:
            groups = {}
            for letter, words in sides.items():
                groups[letter] = start_group([*words, *settings], [{}])
                stack.callback(groups[letter].close)
            while len(rounds) < MOST_ROUNDS and (len(rounds) < FEWEST_ROUNDS or clock() < end):
                order = rng.sample(list(groups), len(groups))
                rounds.append({letter: groups[letter].round()[0] for letter in order})
                for letter in groups.keys() - {base}:
                    if estimate := log_ratio([(each[letter], each[base]) for each in rounds]):
                        ratios[letter] = estimate
                if ratios and all(estimate.is_decided for estimate in ratios.values()):
                    break
    except TurnError as error:
        return Settled(row.config, len(rounds), {}, str(error))
    return Settled(row.config, len(rounds), ratios)
