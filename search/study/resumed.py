"""Resumption of a run: its space, the settings that may change, and the checks that it can go on."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from search.exit_codes import InputError
from search.front.objective import read_constraint
from search.record.defaults import changed_defaults
from search.record.events import End, Event, Opening
from search.record.journal import FILE_NAME, read_journal
from search.record.run_end import is_wanted_end
from search.record.run_state import RunState
from search.record.source import recorded_file
from search.space.budget import Budget
from search.space.machine import Machine
from search.space.parsing import parse_space
from search.space.restriction import still_there
from search.space.space import Space
from search.space.space_file import OVERLAY, apply_overrides, merge_settings
from search.space.validation import Source
from search.text.configurations import format_setting
from search.text.numbers import plural
from trainables.contract import EPOCHS, undated

SAME_IN_FILE = (
    *("trainable", "data", "evaluation", "objectives", "constraints", "parameters", "fixed", "baseline"),
    *("searcher", "stopping", "concurrent_trials"),
)
NEEDED = ("space", "trainable", "machine", "budget", "versions", "command")  # of the `run` event


def read_run(folder: Path) -> list[Event]:
    """Return the events of the run in that folder.

    Raises:
        InputError: it is not the folder of a run.
    """
    try:
        return read_journal(folder / FILE_NAME)
    except FileNotFoundError:
        raise InputError(f"{folder}: not the folder of a run: there is no {FILE_NAME} in it") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{folder}: not the folder of a run: {error}") from error


def resume_space(run_state: RunState, overrides: Sequence[str], folder: Path) -> Space:
    """Return the run's space with its budget as last extended, and with `overrides` applied.

    Raises:
        InputError: an override is not of the budget, the journal says too little, or a user's file has changed.
        SpaceError: an override makes no sense.
    """
    first = run_state.info
    if missing := first.missing(NEEDED):
        raise InputError(f"the journal's first line does not say {', '.join(missing)}: this run cannot go on")
    budget = run_state.budget.model_dump(exclude_unset=True)
    trainable = recorded_file(first.trainable, first.source, folder)
    mapping: dict[str, Any] = {**(first.space or {}), "trainable": trainable, "budget": budget}
    mapping["parameters"] = _consistent(mapping.get("parameters", {}))  # earlier versions did not do so when they began
    for override in overrides:
        section, _, name = override.partition("=")[0].strip().partition(".")
        if (section, name) != ("data", "root") and (section != "budget" or not name):
            said, section = (" ".join(text.split()) for text in (override, section))
            raise InputError(f"--set {said}: a resumed run keeps its {section}; only budget.* and data.root may change")
    return parse_space(apply_overrides(mapping, overrides), Source("--resume"))


def check_same_space(folder: Path, info: Opening, asked: Space) -> None:
    """Check that a run was begun with this space file; its budget may have changed.

    Raises:
        InputError: it was not.
    """
    given = asked.to_mapping()
    without_gpu = merge_settings({**given, OVERLAY: {}}, asked.without_gpu)
    overlaid = parse_space(without_gpu, Source(OVERLAY)).to_mapping()
    for key in SAME_IN_FILE:
        found = (info.space or {}).get(key, given[key])
        if not any(_is_same(key, found, one[key], info.left_out) for one in (given, overlaid)):
            raise InputError(
                f"{folder}: was begun with {_other(key, found, given[key])}; give the same, or another --name"
            )


def _other(key: str, recorded: Any, asked: Any) -> str:
    """Return what differs: the settings of a section, as far as they can be told apart."""
    if isinstance(recorded, Mapping) and isinstance(asked, Mapping):
        every = ("name", "train_images", "val_images") if key == "data" else dict.fromkeys([*recorded, *asked])
        names = [name for name in every if asked.get(name) not in (recorded.get(name), "auto")]
        plain = [name for name in names if not isinstance(recorded.get(name), Mapping | list)]
        if names and len(plain) == len(names):
            told = {name: format_setting(recorded[name]) if name in recorded else "left out" for name in names}
            return ", ".join(f"{key}.{name} {text}" for name, text in told.items())
    return f"other {key}"


def _is_same(key: str, recorded: Any, asked: Any, left_out: Sequence[str]) -> bool:
    match key:
        case "parameters":
            there, recorded = _without(asked, left_out), _consistent(recorded)
            same_names = recorded.keys() == there.keys()
            return same_names and all(recorded[name].items() <= there[name].items() for name in there)
        case "data":  # its folder may have moved; `auto` is compared by what is found
            stated = {name for name in ("name", "train_images", "val_images") if name in recorded}
            return all(asked[name] in (recorded[name], "auto") for name in stated)
        case "constraints":  # earlier versions wrote 5.0 for 5
            return [*map(read_constraint, recorded)] == [*map(read_constraint, asked)]
        case "trainable":  # the folder of a run names a user's file by its place beside it
            return Path(recorded or "").name == Path(asked or "").name
        case _:
            return bool(recorded == asked)


def _without(parameters: Mapping[str, Any], left_out: Sequence[str]) -> dict[str, Any]:
    """Return the parameters of a space file without those, and their values, that a machine cannot run."""

    def is_left_out(what: str) -> bool:
        return any(line.startswith(f"{what}: ") for line in left_out)

    kept = {name: dict(stated) for name, stated in parameters.items() if not is_left_out(name)}
    for name, stated in kept.items():
        if "values" in stated:
            stated["values"] = [value for value in stated["values"] if not is_left_out(f"{name} {value}")]
    return _consistent(kept)


def _consistent(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters whose `likely` and `when` name values that are still there, as `for_machine` does."""
    values = {name: _several(stated["values"]) for name, stated in parameters.items() if "values" in stated}
    found = {name: dict(stated) for name, stated in parameters.items()}
    for name, stated in found.items():
        if name in values and stated.get("likely"):
            stated["likely"] = still_there(_several(stated["likely"]), values[name])
        if stated.get("when"):
            when = stated["when"].items()
            stated["when"] = {other: still_there(_several(wanted), values.get(other)) for other, wanted in when}
    return found


def _several(value: Any) -> list[Any]:
    """Return the values of a list, or the only one, as a space file may have it."""
    return list(value) if isinstance(value, list | tuple) else [value]


def check_same_data(folder: Path, info: Opening, name: str, description: str) -> str | None:
    """Check that the data have the name, counts and classes that the run's data had; their folder may have moved.

    Return a warning where the files of a user's data have another number or size: the training may write some itself.
    Their dates may differ, as those of a copy do.

    Raises:
        InputError: they have not.
    """
    was = info.data
    if name != was.name:
        raise InputError(f"{folder}: the run's data is {was.name}, but {name} is what is here")
    before, now = (_samples_and_classes(each) for each in (was.description, description))
    is_same = now == before or now.startswith(f"{before}, ")  # earlier versions did not name classes
    if is_same:
        return None
    text = f"the run's data was {was.description}, but {description} is what is here"
    if not info.source:
        raise InputError(f"{folder}: {text}")
    return f"{text}; if samples differ, start a new run, as these trials do not compare with new ones"


def _samples_and_classes(description: str) -> str:
    """Return what is said of samples, classes and files, without folders that are not used."""
    return undated(description.partition("; not used")[0])


def changed_budget(run_state: RunState, asked: Space) -> list[str]:
    """Return overrides for the budget settings in which this space file differs from the budget that the run has."""
    given = asked.to_mapping()
    if not run_state.info.machine.gpus:
        given = merge_settings(given, asked.without_gpu)
    known = run_state.budget.model_dump()
    return [f"budget.{name}={json.dumps(value)}" for name, value in given["budget"].items() if value != known[name]]


def check_length(run_state: RunState, now: Budget) -> None:
    """Check that new trials are as long as those that are there: shorter ones would never be on the front.

    Raises:
        InputError: they would be shorter.
    """
    if now.epochs >= run_state.budget.epochs:
        return
    kept = (trial for trial in run_state.counted() if trial.state in ("complete", "running"))
    longer = [trial.epochs for trial in kept if trial.epochs > now.epochs and not trial.config.get(EPOCHS)]
    if longer:
        raise InputError(
            f"budget.epochs={now.epochs}: {plural(len(longer), 'trial')} of up to {max(longer)} epochs would not be "
            f"compared with shorter ones; give {max(longer)} or more, or start a new run"
        )


def budget_changes(run_state: RunState, now: Budget) -> list[str]:
    """Return a line for each setting of the budget that is no longer what the run had, and for trials now too short."""
    known = run_state.budget.model_dump(exclude_unset=True)
    settings = ((name, known.get(name, value), value) for name, value in now.model_dump().items())
    lines = [f"budget.{name} was {old}, and is {new} now" for name, old, new in settings if old != new]
    complete = [trial for trial in run_state.counted() if trial.state == "complete" and not trial.config.get(EPOCHS)]
    short = [trial for trial in complete if run_state.budget.epochs <= trial.epochs < now.epochs]
    if short:
        lines.append(f"{plural(len(short), 'complete trial')} of fewer epochs will not be compared with new ones")
    return lines


def check_same_defaults(folder: Path, info: Opening) -> None:
    """Check that settings which the run leaves out still mean the same: one front cannot have trials of both.

    Raises:
        InputError: one of them means something else by now.
    """
    stated = info.parameters.keys() | info.fixed.keys()
    changed = {name: value for name, value in changed_defaults(info).items() if name not in stated}
    if changed:
        which = ", ".join(f"{name} was {format_setting(value)}" for name, value in changed.items())
        raise InputError(f"{folder}: defaults have changed since the run began: {which}; {_start_anew(folder)}")


def check_same_machine(there: Machine, here: Machine) -> None:
    """Check that the run was made on this machine: rates of two machines cannot share a front.

    Raises:
        InputError: this machine is another one.
    """
    if which := there.difference(here):
        raise InputError(f"the run was made on another machine: {which}; start a new one")


def check_replay(folder: Path, space: Space, events: Sequence[Event]) -> None:
    """Check that a search in this space can have written these events.

    Raises:
        InputError: it is not.
    """
    from search.advisor.advisor import Advisor

    try:
        Advisor(space).replay(events)
    except (ValueError, KeyError, TypeError, ArithmeticError) as error:
        raise InputError(f"{folder / FILE_NAME}: the run cannot go on: {error}; {_start_anew(folder)}") from error


def _start_anew(folder: Path) -> str:
    return f"start a new one, with --warm-start {shlex.quote(str(folder))}"


def is_finished(last: Event, run_state: RunState, space: Space) -> bool:
    """Return whether the run has come to its end, and nothing extends it now; `last`: its last event."""
    ended = isinstance(last, End) and is_wanted_end(last.reason)
    return ended and run_state.budget.model_dump() == space.budget.model_dump()
