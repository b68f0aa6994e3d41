"""What a line of the journal must hold to be an event: what is read back may come from anyone, or be damaged."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from search.front.objective import read_constraint
from search.limits import LARGEST, WIDEST

Event = dict[str, Any]
Check = Callable[[Any], None]  # raises ValueError, which says where and what was expected

LATEST = 2.0**33  # seconds since 1970, in the year 2242: dates after that have no nanoseconds
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")  # would move a terminal's cursor, or be no text
STATES = ("complete", "stopped", "infeasible", "failed")


def parse(line: bytes) -> Event:
    """The event of a line.

    Raises:
        ValueError: it is none; says why in a few words.
    """
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("no JSON object, or not all of one") from None
    _event(event)
    fields = KINDS.get(event["event"])
    if fields is not None:
        fields(event)
    printable: Event = _printable(event) if b"\\u" in line or b"\x7f" in line or b"\xc2" in line else event
    return printable


def _printable(value: Any) -> Any:
    """The same, without what a terminal would obey."""
    match value:
        case str():
            return CONTROL.sub("\ufffd", value)
        case dict():
            return {_printable(key): _printable(item) for key, item in value.items()}
        case list():
            return [_printable(item) for item in value]
    return value


# --- what a value may be ----------------------------------------------------------------------------------------------


def fields(required: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    """A mapping with these keys; others are nobody's business. What is optional may also be null."""
    known = {**required, **{name: null_or(check) for name, check in (optional or {}).items()}}

    def check(value: Any) -> None:
        if not isinstance(value, dict):
            raise ValueError("expected a mapping")
        for name in required:
            if name not in value:
                raise ValueError(f"{name}: missing")
        for name, of_field in known.items():
            if name in value:
                _within(name, of_field, value[name])

    return check


def every(of_item: Check, least: int = 0) -> Check:
    """A list of these, so many at least."""

    def check(value: Any) -> None:
        if not isinstance(value, list) or len(value) < least:
            raise ValueError("expected a list" + f" of at least {least}" * (least > 0))
        for i, item in enumerate(value):
            _within(f"[{i}]", of_item, item)

    return check


def by_name(of_item: Check) -> Check:
    """A mapping with these under any name."""

    def check(value: Any) -> None:
        if not isinstance(value, dict):
            raise ValueError("expected a mapping")
        for name, item in value.items():
            _within(name, of_item, item)

    return check


def null_or(of_value: Check) -> Check:
    """That, or null."""
    return lambda value: None if value is None else of_value(value)


def matching(pattern: str, expected: str) -> Check:
    """A text of this form."""
    form = re.compile(pattern)
    return lambda value: _expect(isinstance(value, str) and form.fullmatch(value) is not None, expected)


def whole(least: int) -> Check:
    """A whole number, at least that."""

    def check(value: Any) -> None:
        _expect(type(value) is int and least <= value < LARGEST, f"a whole number, at least {least}")

    return check


def text(value: Any) -> None:
    """Any."""
    _expect(isinstance(value, str), "a word")


def number(value: Any) -> None:
    """A finite one."""
    _expect((type(value) is float and math.isfinite(value)) or (type(value) is int and abs(value) < WIDEST), "a number")


def positive(value: Any) -> None:
    """A number above zero."""
    number(value)
    _expect(value > 0, "a number above zero")


def scalar(value: Any) -> None:
    """What a setting may be."""
    if type(value) in (int, float):
        number(value)
    else:
        _expect(value is None or isinstance(value, str | bool), "a number, a word, true or false")


def anything(value: Any) -> None:
    """Nobody computes with it."""


def _within(name: str, check: Check, value: Any) -> None:
    try:
        check(value)
    except ValueError as error:
        separator = "" if str(error).startswith("[") else ": " if str(error).startswith("expected") else "."
        raise ValueError(f"{name}{separator}{error}") from None


def _expect(holds: bool, expected: str) -> None:
    if not holds:
        raise ValueError(f"expected {expected}")


# --- the events -------------------------------------------------------------------------------------------------------


def _time(value: Any) -> None:
    number(value)
    _expect(0 <= value < LATEST, "seconds since 1970")


def _constraint(value: Any) -> None:
    try:
        read_constraint(value)
    except (TypeError, ValueError):
        raise ValueError("expected a constraint, as in a <= 0.5") from None


metrics = by_name(null_or(number))
settings = by_name(scalar)
words = every(text)
trial_id = matching(r"[a-z]\d{1,9}", "the name of a trial, as in t0001")  # it is a folder's name too
kind = matching("train|probe", "train or probe")

BUDGET = fields({"epochs": whole(1)}, dict.fromkeys(("trials", "hours", "total_epochs", "least_gain"), positive))
GPU = fields({"name": text, "memory_gib": number})
MACHINE = fields(
    {"cpu_name": text, "cores": whole(1), "memory_gib": number, "gpus": every(GPU)},
    {"shm_gib": number, "num_nodes": whole(1)},
)
DATA = fields({}, {"name": text, "root": text, "train_images": whole(1), "val_images": whole(1)})
SPACE = fields({}, {"parameters": by_name(by_name(anything)), "fixed": settings, "data": DATA, "evaluation": text})
ADVICE = fields({"parameter": text, "old": scalar, "new": scalar, "gain": number}, {"why": text})
VERDICT = fields({"bound_by": text, "share": number}, {"why": text, "advice": every(ADVICE)})
OBJECTIVE = fields({"metric": text, "goal": matching("maximize|minimize", "maximize or minimize")})
KNOWN = fields({"config": settings, "metrics": metrics}, {"source": text})

_event = fields({"event": text, "time": _time})
KINDS: Mapping[str, Check] = {
    "run": fields(
        {"name": text, "objectives": every(OBJECTIVE, least=1), "data": fields({"name": text}, {"description": text})},
        {
            "space": SPACE,
            "trainable": text,
            "constraints": every(_constraint),
            "budget": BUDGET,
            "grid_points": whole(0),
            "metrics": by_name(text),
            "machine": MACHINE,
            "versions": by_name(text),
            "commit": text,
            "command": words,
            "left_out": words,
            "space_file": text,
        },
    ),
    "resume": fields({}, {"budget": BUDGET, "command": words}),
    "known": fields({"measurements": every(KNOWN)}),
    "start": fields({"trial_id": trial_id, "config": settings}, {"kind": kind}),
    "measurement": fields(
        {"trial_id": trial_id, "epoch": whole(0), "metrics": metrics},
        {"seconds": number, "decision": matching("continue|stop", "continue or stop")},
    ),
    "retry": fields({"trial_id": trial_id}, {"reason": text}),
    "finish": fields(
        {"trial_id": trial_id, "state": matching("|".join(STATES), f"one of {', '.join(STATES)}")},
        {"reason": text, "seconds": number, "setup_seconds": number, "verdict": VERDICT, "metrics": metrics},
    ),
    "repeat": fields({"trial_id": trial_id, "metrics": metrics}),
    "test": fields({"trial_id": trial_id, "metrics": metrics}),
    "end": fields({}, {"reason": text}),
}
