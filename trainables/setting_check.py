"""Check of settings against the parameters of a training, and the words of its messages."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from trainables.contract import Parameter

MOST_NAMES = 24  # that a message lists
TYPES: Mapping[str, type[Any]] = {"int": int, "float": float, "str": str, "bool": bool}
TYPE_NAMES = {"int": "a whole number", "float": "a number", "str": "a string", "bool": "true or false"}


def checked(config: Mapping[str, Any], parameters: Mapping[str, Parameter]) -> dict[str, Any]:
    """Return a value for every parameter: the given one or the default.

    Raises:
        ValueError: an unknown name, with the nearest one, or a value that its parameter does not allow.
    """
    for name, value in config.items():
        if name not in parameters:
            raise ValueError(f'no parameter "{name}"{did_you_mean(name, parameters)}')
        if mistake := mistake_in(value, parameters[name]):
            raise ValueError(f"{name}: {mistake}")
    given = {
        name: float(value) if parameters[name].type == "float" and type(value) is int else value
        for name, value in config.items()
    }
    return {name: given.get(name, parameter.default) for name, parameter in parameters.items()}


def mistake_in(value: Any, parameter: Parameter) -> str | None:
    """Return why the parameter cannot have this value; None: it can. No value will do where that is the default."""
    if value is None and parameter.default is None:
        return None
    kind = int | float if parameter.type == "float" else TYPES[parameter.type]
    same = [type(choice) for choice in parameter.choices if choice == value]
    if type(value) in same or (type(value) is int and float in same):
        return None  # also one of another type than most, such as true beside "auto"
    found = f"found {format_value(value)}"
    if not isinstance(value, kind) or (isinstance(value, bool) and parameter.type != "bool"):
        return f"{found}; expected {list_choices(parameter) or TYPE_NAMES[parameter.type]}"
    if parameter.choices:
        words = [choice for choice in parameter.choices if isinstance(choice, str)]
        only_words = len(words) == len(parameter.choices)
        return f"{found}{did_you_mean(value, words) if only_words else f'; expected {list_choices(parameter)}'}"
    if isinstance(value, str):
        return None
    if not math.isfinite(value):
        return f"{found}; expected a finite number"
    if parameter.low is not None and value < parameter.low:
        return f"{found}; expected at least {parameter.low:g}"
    if parameter.high is not None and value > parameter.high:
        return f"{found}; expected at most {parameter.high:g}"
    return None


def list_choices(parameter: Parameter) -> str:
    """Return the values of a parameter that has few; an empty text: it has many."""
    if parameter.type == "bool":
        return TYPE_NAMES["bool"]
    return ", ".join(format_value(choice) if isinstance(choice, bool) else f"{choice}" for choice in parameter.choices)


def did_you_mean(word: Any, names: Iterable[str]) -> str:
    """Return `; did you mean "learning_rate"?` for `lerning_rate`, `learning`, `lr` or `lrr`, or list all names."""
    names = list(names)
    initials = {"".join(part[:1] for part in name.split("_")): name for name in names if "_" in name}
    known = initials | {name: name for name in names}
    close = [name for name in names if name.lower() == f"{word}".lower()]
    close += [name for name in names if word and name.startswith(f"{word}_")]
    close += [name for name in names if word and name.endswith(f"_{word}")]
    close += get_close_matches(f"{word}", known, n=1)
    if close:
        return f'; did you mean "{known[close[0]]}"?'
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"; there {'is' if len(names) == 1 else 'are'} {', '.join(names[:MOST_NAMES])}{more}" if names else ""


def format_value(value: Any) -> str:
    """Return a value in a short form that its author recognises."""
    if isinstance(value, str):
        return json.dumps(value if len(value) <= 40 else f"{value[:40]}...", ensure_ascii=False)
    if isinstance(value, Mapping | list | tuple):
        return "a mapping" if isinstance(value, Mapping) else "a list"
    return "nothing" if value is None else f"{value}".lower() if isinstance(value, bool) else f"{value}"
