"""One-line error messages for space files: file and line, key, the value found, the values allowed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from pydantic_core import ErrorDetails

from trainables.setting_check import did_you_mean, format_value

KeyPath = tuple[str | int, ...]  # ("parameters", "batch_size", "values", 2)

# Expected value of a missing key, by the last part of its path.
_EXAMPLES = {
    "objectives": "[{metric: ..., goal: maximize}, {metric: ..., goal: minimize}]",
    "parameters": "{NAME: {values: [...]}, ...}",
    "metric": "the name of a metric",
    "goal": "maximize or minimize",
    "values": "a list of values",
    "min": "a number",
    "max": "a number",
}
# Expected value, by pydantic's error type.
_EXPECTED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "a string",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "finite_number": "a finite number",
    "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt:g}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le:,.0f}",
}


class SpaceError(Exception):
    """Unusable space file. The message has a line per problem: place, key, value found, values allowed."""


class Problem(NamedTuple):
    """Invalid value at a path; `Source.error` adds the place where the value was written."""

    path: KeyPath
    message: str


class Place(NamedTuple):
    """Place where a key was written: `spaces/a.yaml:12` or `--set data.name=folder`, and its dotted name there."""

    origin: str
    key: str


@dataclass(frozen=True)
class Source:
    """Places of all keys of a space. A path without a place of its own has that of its nearest parent."""

    origin: str
    places: Mapping[KeyPath, Place] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """Folder of the space file; the working folder for other sources."""
        return Path(self.origin.rpartition(":")[0]).parent

    def error(self, problem: Problem) -> SpaceError:
        """Return the problem as an error that names its place."""
        known = problem.path
        while known and known not in self.places:
            known = known[:-1]
        place = self.places.get(known, Place(self.origin, ""))
        key = dotted_key(problem.path[len(known) :], after=place.key)
        parts = [part for part in (place.origin, key, problem.message) if part]
        return SpaceError(" ".join(": ".join(parts).splitlines()))

    def errors(self, problems: Iterable[Problem]) -> SpaceError:
        """Return the problems as one error with a line for each, in the order of their lines; one for each key."""
        first = {problem.path: problem for problem in reversed(list(problems))}
        lines = {str(self.error(problem)): self._line(problem.path) for problem in reversed(first.values())}
        return SpaceError("\n".join(sorted(lines, key=lambda line: lines[line])))

    def _line(self, path: KeyPath) -> int:
        while path and path not in self.places:
            path = path[:-1]
        number = self.places.get(path, Place(self.origin, "")).origin.rpartition(":")[2]
        return int(number) if number.isdigit() else 0  # --set comes first

    def overlaid(self, section: str) -> Source:
        """Return the places in the mapping into which a section was merged: merged keys have the section's places."""
        moved = {path[1:]: place for path, place in self.places.items() if path[:1] == (section,) and len(path) > 1}
        return Source(self.origin, {**self.places, **moved})


def translate_error(detail: ErrorDetails, names: Iterable[str]) -> Problem:
    """Translate pydantic's error to the words of space files; `names` are the keys that the enclosing mapping knows."""
    path = tuple(part for part in detail["loc"] if not f"{part}".startswith(("<", "[")))  # without pydantic's tags
    found, context = format_value(detail["input"]), detail.get("ctx", {})
    match detail["type"]:
        case "extra_forbidden" | "unexpected_keyword_argument":
            return Problem(path, f'unknown key "{path[-1]}"{did_you_mean(path[-1], names)}')
        case "missing":
            return Problem(path, f"missing; expected {_EXAMPLES.get(f'{path[-1]}', 'a value')}")
        case "literal_error":
            choices = re.findall("'(.+?)'", context["expected"])
            return Problem(path, f"found {found}{did_you_mean(detail['input'], choices)}")
        case "model_type" | "dataclass_type":
            return Problem(path, f"found {found}; expected a mapping of {', '.join(names)}")
    expected = _EXPECTED[detail["type"]].format(**context) if detail["type"] in _EXPECTED else detail["msg"]
    return Problem(path, f"found {found}; expected {expected}")


def dotted_key(path: KeyPath, after: str = "") -> str:
    """Return a path as text, for example `parameters.batch_size.values[2]`."""
    for part in path:
        after += f"[{part}]" if isinstance(part, int) else f".{part}" if after else part
    return after
