"""A run that is taken up again: its space as it was, what may be changed of it, and when it cannot go on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from search.outcome import InputError
from search.record.journal import FILE_NAME, Event, read_journal
from search.space.budget import Budget
from search.space.machine import Machine
from search.space.space import Space, parse_space
from search.space.space_file import overridden
from search.study.interrupt import BY_SIGNAL

NEEDED = ("space", "trainable", "machine", "budget", "versions", "command")  # of the `run` event
GAVE_UP = "Ray Tune gave up"  # the reason of an end that nobody wanted


def journal_of(folder: Path) -> list[Event]:
    """The events of the run in that folder.

    Raises:
        InputError: it is not the folder of a run.
    """
    try:
        return read_journal(folder / FILE_NAME)
    except FileNotFoundError:
        raise InputError(f"{folder}: not the folder of a run: there is no {FILE_NAME} in it") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{folder}: not the folder of a run: {error}") from error


def resumed_space(events: Sequence[Event], overrides: Sequence[str]) -> Space:
    """The run's space as it was, with its budget as last extended, and with what `overrides` extend now.

    Raises:
        InputError: an override is not of the budget, or the journal says too little.
        SpaceError: an override makes no sense.
    """
    first = events[0]
    missing = [name for name in NEEDED if first.get(name) is None]
    if missing:
        raise InputError(f"the journal's first line does not say {', '.join(missing)}: this run cannot go on")
    mapping: dict[str, Any] = {**first["space"], "trainable": first["trainable"], "budget": _budget(events)}
    for override in overrides:
        section, _, name = override.partition("=")[0].strip().partition(".")
        if (section, name) != ("data", "root") and (section != "budget" or not name):
            said, section = (" ".join(text.split()) for text in (override, section))
            raise InputError(f"--set {said}: a resumed run keeps its {section}; only budget.* and data.root may change")
    return parse_space(overridden(mapping, overrides), "--resume")


def refuse_other_machine(events: Sequence[Event], machine: Machine) -> None:
    """Rates of two machines have no place on one front.

    Raises:
        InputError: this machine is another one.
    """
    there, here = events[0]["machine"], machine.to_mapping()
    for key in ("cpu_name", "cores", "gpus"):
        if there[key] != here[key]:
            raise InputError(
                f"the run was made on another machine: {key} {there[key]} there, {here[key]} here; start a new one"
            )


def refuse_contradictions(folder: Path, space: Space, events: Sequence[Event]) -> None:
    """What the events say together must be what a search in this space can have done.

    Raises:
        InputError: it is not.
    """
    from search.advisor.advisor import Advisor

    try:
        Advisor(space).replay(events)
    except (ValueError, KeyError, TypeError, ArithmeticError) as error:
        how = f"start a new one, with --warm-start {folder}"
        raise InputError(f"{folder / FILE_NAME}: the run cannot go on: {error}; {how}") from error


def is_over(events: Sequence[Event], space: Space) -> bool:
    """Whether the run has come to its end, and nothing extends it now."""
    last = events[-1]
    reason = last.get("reason") or ""
    ended = last["event"] == "end" and not reason.startswith(BY_SIGNAL) and reason != GAVE_UP
    return ended and Budget.model_validate(_budget(events)) == space.budget


def _budget(events: Sequence[Event]) -> dict[str, Any]:
    budgets = (event.get("budget") for event in reversed(events) if event["event"] in ("run", "resume"))
    return dict(next(budget for budget in budgets if budget is not None))
