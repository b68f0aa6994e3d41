"""What is wrong with a space file, said in one line: the place, the key, what was found, what would do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, NamedTuple

from pydantic_core import ErrorDetails

KeyPath = tuple[str | int, ...]  # ("parameters", "batch_size", "values", 2)

# What would stand where something is missing, by the last word of its path.
_EXAMPLES = {
    "objectives": "[{metric: ..., goal: maximize}, {metric: ..., goal: minimize}]",
    "parameters": "{NAME: {values: [...]}, ...}",
    "metric": "the name of a metric",
    "goal": "maximize or minimize",
    "values": "a list of values",
    "min": "a number",
    "max": "a number",
}
# What would do, by pydantic's error type.
_EXPECTED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "a word",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "finite_number": "a finite number",
    "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt:g}",
    "less_than": "less than {lt}",
}


class SpaceError(Exception):
    """A space file cannot be used. One line: where, which key, what was found, what would do."""


class Fault(NamedTuple):
    """What is wrong with the value at a path, before it is known where that was written."""

    path: KeyPath
    message: str


class Place(NamedTuple):
    """Where a key was written: `spaces/a.yaml:12` or `--set data.name=folder`, and its dotted name there."""

    origin: str
    key: str


@dataclass(frozen=True)
class Source:
    """Turns faults into errors that name the place. A path without a place has that of the path around it."""

    origin: str
    places: Mapping[KeyPath, Place] = field(default_factory=dict)

    def error(self, fault: Fault) -> SpaceError:
        """The fault, at the place of its path."""
        known = fault.path
        while known and known not in self.places:
            known = known[:-1]
        place = self.places.get(known, Place(self.origin, ""))
        key = dotted(fault.path[len(known) :], after=place.key)
        parts = [part for part in (place.origin, key, fault.message) if part]
        return SpaceError(" ".join(": ".join(parts).splitlines()))

    def overlaid(self, section: str) -> Source:
        """As seen by a mapping into which that section of it was merged: what the section sets is placed there."""
        moved = {path[1:]: place for path, place in self.places.items() if path[:1] == (section,) and len(path) > 1}
        return Source(self.origin, {**self.places, **moved})


def malformed(detail: ErrorDetails, names: Iterable[str]) -> Fault:
    """What pydantic found, in the words of space files; `names` are those that the enclosing mapping may have."""
    path = tuple(part for part in detail["loc"] if not f"{part}".startswith(("<", "[")))  # its own tags
    found, context = shown(detail["input"]), detail.get("ctx", {})
    match detail["type"]:
        case "extra_forbidden" | "unexpected_keyword_argument":
            return Fault(path, f'unknown key "{path[-1]}"{nearest(path[-1], names)}')
        case "missing":
            return Fault(path, f"missing; expected {_EXAMPLES.get(f'{path[-1]}', 'a value')}")
        case "literal_error":
            choices = re.findall("'(.+?)'", context["expected"])
            return Fault(path, f"found {found}{nearest(detail['input'], choices)}")
        case "model_type" | "dataclass_type":
            return Fault(path, f"found {found}; expected a mapping of {', '.join(names)}")
    expected = _EXPECTED[detail["type"]].format(**context) if detail["type"] in _EXPECTED else detail["msg"]
    return Fault(path, f"found {found}; expected {expected}")


def nearest(word: Any, names: Iterable[str]) -> str:
    """`; did you mean "learning_rate"?` for `lerning_rate`, `learning`, `lr` or `lrr`, or else all the names."""
    names = list(names)
    initials = {"".join(part[:1] for part in name.split("_")): name for name in names if "_" in name}
    known = {**initials, **{name: name for name in names}}
    close = get_close_matches(f"{word}", known, n=1) or [name for name in names if word and name.startswith(f"{word}_")]
    if close:
        return f'; did you mean "{known[close[0]]}"?'
    return f"; there {'is' if len(names) == 1 else 'are'} {', '.join(names)}" if names else ""


def shown(value: Any) -> str:
    """A value as its writer would recognise it, short."""
    match value:
        case None:
            return "nothing"
        case Mapping():
            return "a mapping"
        case list() | tuple():
            return "a list"
        case str():
            return json.dumps(value if len(value) <= 40 else f"{value[:40]}...", ensure_ascii=False)
        case bool():
            return "true" if value else "false"
        case _:
            return f"{value}"


def dotted(path: KeyPath, after: str = "") -> str:
    """`parameters.batch_size.values[2]`."""
    for part in path:
        after += f"[{part}]" if isinstance(part, int) else f".{part}" if after else part
    return after
