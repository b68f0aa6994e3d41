"""Settings of which all points of the front have the largest or the smallest value that was searched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from search.front.shared import NEARLY, place_in_range
from search.record.dataframes import Run
from search.record.source import recorded_copy
from search.text.configurations import format_setting
from search.text.numbers import join_words
from trainables.contract import Parameter, Trainable, find_trainable, load_trainable

FEWEST_POINTS, FEWEST_VALUES = 2, 3  # of a front; of a list whose ends say something


def at_ends(run: Run) -> str:
    """Return a sentence on the settings that might be better beyond what was searched; empty: there are none.

    A setting is left out where the training or this machine allows no further value.
    """
    front, known, found = run.state.front(), _parameters(run), []
    for name, stated in run.info.parameters.items():
        values = [trial.config[name] for trial in front if name in trial.config]
        if len(front) < FEWEST_POINTS or len(values) < len(front) or not all(map(_is_number, values)):
            continue
        end, word = _end(stated, values)
        is_left_out = any(line.startswith(f"{name} ") for line in run.info.left_out)
        if end is not None and not is_left_out and not (name in known and end in _limits(known[name])):
            found.append(f"the {word} {name} ({format_setting(end)})")
    if not found:
        return ""
    return f"All points of the front have nearly {join_words(found)} that was searched: better ones may lie beyond."


def _parameters(run: Run) -> Mapping[str, Parameter]:
    """Return the parameters of the training; those of a user's file from the copy in the run's folder."""
    try:
        trainable: Trainable | None = load_trainable(recorded_copy(run.info.trainable, run.folder))
    except (LookupError, ImportError):
        trainable = find_trainable(run.info.trainable)
    return (trainable.PARAMETERS if trainable else None) or {}


def _limits(parameter: Parameter) -> tuple[Any, ...]:
    numbers = list(filter(_is_number, parameter.choices))
    return (parameter.low, parameter.high, *([min(numbers), max(numbers)] if numbers else []))


def _end(stated: Mapping[str, Any], values: Sequence[float]) -> tuple[float | None, str]:
    """Return the end at which all values are, and a word for it; None: they are not."""
    listed = stated.get("values", ())
    if "min" in stated:
        ends, near = stated, NEARLY
    elif len(listed) >= FEWEST_VALUES and all(map(_is_number, listed)):
        ends, near = {"min": min(listed), "max": max(listed)}, 0.0
    else:
        return None, ""
    places = [place_in_range(value, ends) for value in values]
    if min(places) >= 1 - near:
        return ends["max"], "largest"
    return (ends["min"], "smallest") if max(places) <= near else (None, "")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
