"""Conditions with which a comparison fails, for a job that checks each change of a training."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from search.compare.comparison import (
    Shared,
    Side,
    compared_metrics,
    hypervolumes,
    not_comparable,
    other_machines,
    other_shares,
)
from search.exit_codes import InputError
from search.front.differences import Estimate
from search.front.intervals import HALF_95, UNKNOWN_DEVIATION
from search.front.targets import is_duration
from search.text.numbers import format_number, format_ratio, join_words, plural

HYPERVOLUME = "hypervolume"
EXAMPLE = '"images_per_second<0.95", "val_accuracy<-0.01" or "hypervolume<0.98"'


@dataclass(frozen=True)
class FailIf:
    """Bound of what the later run has against the first: a ratio of rates or hypervolumes, else a difference."""

    metric: str
    below: bool
    bound: float

    def __str__(self) -> str:
        return f"{self.metric}{'<' if self.below else '>'}{self.bound:g}"

    def is_met(self, low: float, high: float) -> bool:
        """Return whether the whole interval is beyond the bound."""
        return high < self.bound if self.below else low > self.bound


@dataclass(frozen=True)
class Outcome:
    """Finding of a condition for one of the runs, in words."""

    text: str
    failed: bool


def parsed(text: str, named: Sequence[Side]) -> FailIf:
    """Return the condition of an option.

    Raises:
        InputError: it is none, the runs have no such metric, or they do not compare in it.
    """
    found = re.fullmatch(r"\s*([\w.]+)\s*([<>])\s*(\S+)\s*", text)
    try:
        metric, sign, bound = found[1], found[2], float(found[3])  # type: ignore[index]
    except (TypeError, ValueError):
        raise InputError(f'--fail-if "{text}": expected METRIC<NUMBER or METRIC>NUMBER, as in {EXAMPLE}') from None
    known = [*compared_metrics(named), HYPERVOLUME]
    if metric not in known or not math.isfinite(bound):
        raise InputError(f'--fail-if "{text}": expected a number for one of {join_words(known)}')
    if is_duration(metric):
        raise InputError(f'--fail-if "{text}": {metric} has no interval, so that no difference would be sure')
    learned = _is_learned(metric, named)
    if not learned and bound <= 0:
        raise InputError(f'--fail-if "{text}": a ratio is above 0, as in {metric}<0.95')
    if (metric == HYPERVOLUME or learned) and (reasons := not_comparable(named)):
        raise InputError(f'--fail-if "{text}": {"; ".join(reasons)}')
    if not learned and other_machines(named):
        raise InputError(f'--fail-if "{text}": the runs are from different machines, which have other rates')
    if not learned and other_shares(named):
        raise InputError(f'--fail-if "{text}": in these runs different numbers of trials share the machine')
    return FailIf(metric, sign == "<", bound)


def outcomes(
    condition: FailIf, named: Sequence[Side], rows: Sequence[Shared], ratios: dict[str, list[Estimate]]
) -> Iterable[Outcome]:
    """Yield what the condition finds for each run but the first.

    `rows`: shared configurations of the metric; `ratios`: by letter, logarithms of ratios that turns have measured,
    which count in place of the rows.
    """
    base, metric = named[0].letter, condition.metric
    for side in named[1:]:
        letter = side.letter
        if metric == HYPERVOLUME:
            volumes = hypervolumes(named)
            if not volumes or not volumes[0][0]:
                yield Outcome(f"`{condition}`: {base} has no front; nothing was compared", failed=False)
                continue
            share = volumes[0][named.index(side)] / volumes[0][0]
            failed = condition.is_met(share, share)
            text = f"{letter} has {share:.4g} times the hypervolume of {base}"
            yield Outcome(f"`{condition}`: {text}{_fails(failed)}", failed)
            continue
        both = [row for row in rows if {letter, base} <= row.readings.keys()]
        learned, in_turns = _is_learned(metric, named), ratios.get(letter, [])
        if learned:
            known = [each for row in both if (each := _difference(row, side, named[0]))]
        else:
            is_rate = side.run.state.is_rate(metric)
            known = in_turns or [each for row in both if (each := _log_ratio(row, letter, base, is_rate))]
        if not known:
            yield Outcome(f"`{condition}`: {letter} shares no configuration with {base} whose interval is known", False)
            continue
        mean = _mean(known, independent=learned or bool(in_turns))
        over = f"over {plural(len(known), 'shared configuration')}"
        if not in_turns and len(known) < len(both):
            over = f"over {len(known)} of {plural(len(both), 'shared configuration')}, those whose interval is known"
        if learned:
            failed = condition.is_met(mean.low, mean.high)
            ends = f"{format_number(mean.mean)} ({format_number(mean.low)} to {format_number(mean.high)})"
            text = f"{letter} minus {base} is {ends}"
            if unknown := [each.letter for each in (named[0], side) if not each.run.state.knows_seeds]:
                differ = f"seeds of {join_words(unknown)} are taken to differ as much as samples"
                over += f"; {differ}, as their spread is not known"
        else:
            ratio, low, high = mean.ratio
            failed = condition.is_met(low, high)
            what = "rate" if metric == side.run.state.rate_metric else metric
            text = f"{letter} has {format_ratio(ratio, low, high)} times the {what} of {base}"
        yield Outcome(f"`{condition}`: {text}, {over}{_fails(failed)}", failed)


def _is_learned(metric: str, named: Sequence[Side]) -> bool:
    return metric != HYPERVOLUME and named[0].run.info.is_learned(metric)


def _fails(failed: bool) -> str:
    return ": **failed**" if failed else ""


def _difference(row: Shared, side: Side, base: Side) -> Estimate | None:
    one, other = row.readings[side.letter], row.readings[base.letter]
    if one.half is None or other.half is None or math.isinf(one.half + other.half):
        return None
    halves = [
        half * (1.0 if each.run.state.knows_seeds else math.sqrt(2.0))
        for half, each in ((one.half, side), (other.half, base))
    ]
    return Estimate(one.value - other.value, math.hypot(*halves) / HALF_95)


def _log_ratio(row: Shared, letter: str, base: str, is_rate: bool) -> Estimate | None:
    ratio, half = row.ratio(letter, base)
    if not ratio > 0 or half == math.inf:
        return None
    if half is None:
        return Estimate(math.log(ratio), math.sqrt(2.0) * UNKNOWN_DEVIATION * is_rate)  # else exact, as memory is
    return Estimate(math.log(ratio), half / ratio / HALF_95)


def _mean(known: Sequence[Estimate], independent: bool) -> Estimate:
    """Return the mean of estimates; its error is theirs, or by their scatter where that is larger.

    Errors of rates are not independent: in another hour all of a machine's rates may be lower.
    """
    number, means = len(known), [each.mean for each in known]
    stated = math.sqrt(fmean(each.deviation**2 for each in known) / (number if independent else 1))
    scatter = stdev(means) / math.sqrt(number) if number > 2 else 0.0
    return Estimate(fmean(means), max(stated, scatter))
