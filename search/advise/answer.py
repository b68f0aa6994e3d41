"""Answer of a comparison of neighbours, as text and as JSON."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping, Sequence

from search.front.neighbour import MIN_GAIN, Neighbour, gains
from search.text.configurations import DEFAULT, assignments, with_all_digits
from search.text.markdown import WIDTH, format_tables, wrap
from search.text.numbers import format_ratio, unknown_intervals
from search.text.reasons import without_rank
from search.text.shell import continued
from search.text.shorten import shorten
from trainables.contract import Scalar

Settings = Mapping[str, Scalar | None]
LEARNED = "*: also changes what is learned; compare the accuracy in a search."
HOW = (
    "Rate with the change over the rate without it, with its 95% interval, from turns of half a second side by side; "
    "the promising ones were measured again."
)


def as_text(tried: Sequence[Neighbour], command: Sequence[str], given: Settings) -> str:
    """Return the table of all changes, what to do, and the command that goes on from the best change.

    `given`: the settings that `command` had.
    """
    measured = sorted((each for each in tried if each.estimate), key=_mean, reverse=True)
    parts = []
    if measured:
        change = {"change": [f"{_words(each)}{'*' if each.changes_learning else ''}" for each in measured]}
        found = {
            "times the rate": [format_ratio(*e.ratio) for each in measured if (e := each.estimate)],
            "": [_verdict(each) for each in measured],
        }
        tables = format_tables(change, found)
        learned = [LEARNED] * ("*" in "".join(change["change"]))
        parts += [*tables, wrap(" ".join([HOW, *learned, *unknown_intervals("\n".join(tables))]))]
    impossible = [each for each in tried if each.reason is not None]
    reasons = [shorten(without_rank(each.reason or ""), 2 * WIDTH) for each in impossible]
    parts += [
        wrap(f"{_words(each)}: not possible here: {reason}") for each, reason in zip(impossible, reasons, strict=True)
    ]
    if waiting := [_words(each) for each in tried if each.reason is None and each.estimate is None]:
        parts.append(wrap(f"Not tried, because the time was too short (--minutes): {', '.join(waiting)}."))
    parts.append(_conclusion(tried, len(measured), command, given))
    return "\n\n".join(parts)


def as_json(tried: Sequence[Neighbour], rate: float) -> str:
    """Return everything as one JSON object; numbers that are not known are null."""
    rows = []
    for each in tried:
        ratio = estimate.ratio if (estimate := each.estimate) else (None, None, None)
        rows.append(
            {
                "parameter": each.parameter,
                "old": each.old,
                "new": each.new,
                "changes_learning": each.changes_learning,
                **dict(zip(("rate_ratio", "rate_ratio_low", "rate_ratio_high"), ratio, strict=True)),
                "turns": len(each.rounds),
                "measured_again": each.measured_again,
                "recommended": each.is_gain,
                "reason": each.reason,
            }
        )
    return json.dumps({"rate": rate if math.isfinite(rate) else None, "changes": rows})


def _conclusion(tried: Sequence[Neighbour], number: int, command: Sequence[str], given: Settings) -> str:
    best = gains(tried)
    if not number:
        return "Nothing was measured in the time; --minutes gives it more."
    if not best:
        if number == 1:
            return wrap(f"The one change that was measured does not surely gain more than {MIN_GAIN:.0%}.")
        return wrap(f"None of the {number} changes that were measured surely gains more than {MIN_GAIN:.0%}.")
    first, estimate = best[0], best[0].estimate
    assert estimate is not None
    more = "" if len(best) == 1 else " Gains of several changes together are not known; go on from the first:"
    text = f"Best: {_words(first)}, {format_ratio(*estimate.ratio)} times the rate.{more or ' Go on from it:'}"
    words = map(shlex.quote, assignments({**given, **first.changed}))
    return f"{wrap(text)}\n\n{continued([*command, *words])}"


def _mean(tried: Neighbour) -> float:
    return estimate.mean if (estimate := tried.estimate) else -math.inf


def _verdict(tried: Neighbour) -> str:
    estimate = tried.estimate
    if tried.is_gain:
        return "faster"
    if estimate is not None and estimate.is_tie:
        return "a tie"
    if estimate is None or estimate.low < 0 < estimate.high:
        return "not decided"
    if not estimate.is_decided:
        return "perhaps slower" if estimate.mean < 0 else "perhaps faster"
    if estimate.mean < 0:
        return "slower"
    return "faster, by little" if tried.measured_again else "faster, not measured again"


def _words(change: Neighbour) -> str:
    old = DEFAULT if change.old is None else with_all_digits(change.old)
    return f"{change.parameter} {old} -> {with_all_digits(change.new)}"
