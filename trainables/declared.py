"""Declaration of a user's training file, read from its text; nothing of the file is run."""

from __future__ import annotations

import ast
import keyword
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn, cast

from trainables.contract import Affects, Metric, Parameter, Role, Scalar
from trainables.metrics import common_metrics
from trainables.setting_check import did_you_mean

MAX_BYTES = 2**20
REQUIRED = {"network": None, "dataset": 2, "loss": 2, "measures": 2}  # number of arguments; None: see `_check_network`
LOOP = {"train": 2, "test": 2}  # of a loop; `test` is optional
OPTIONAL = {"units": 2, "blocks": 1, "collate": 1, "augment": 1}
ARGUMENTS = {
    "dataset": "part, root",
    "loss": "outputs, targets",
    "measures": "outputs, targets",
    "units": "inputs, targets",
    "blocks": "network",
    "collate": "samples",
    "augment": "batch",
    "train": "config, trial",
    "test": "config, trial",
}
ROLES: dict[str, Role] = {"minimize": "loss", "maximize": "quality"}  # of a metric, by its goal
DETAILS = ("default", "low", "high", "choices", "affects", "help")
TYPE_NAMES: dict[type, Literal["int", "float", "str", "bool"]] = {int: "int", float: "float", str: "str", bool: "bool"}


class DeclarationError(LookupError):
    """Raised for a file that declares no training; the message is one line with file and line."""


@dataclass(frozen=True)
class Declaration:
    """Declaration of a training file."""

    path: Path
    unit: str
    parameters: Mapping[str, Parameter]
    metrics: Mapping[str, Metric]
    functions: Collection[str]  # of those that a training file may have


def kind_of(path: Path) -> Literal["workload", "loop"]:
    """Return what a file declares: a loop has `train`, and not all functions of a workload.

    Raises:
        DeclarationError: the file cannot be read.
    """
    return _kind(_Names(path))


def _kind(names: _Names) -> Literal["workload", "loop"]:
    there = {*names.functions, *names.values}
    return "loop" if "train" in names.functions and not there.issuperset(REQUIRED) else "workload"


def declaration_of(path: Path, reserved: Collection[str] = ()) -> Declaration:
    """Read a file's declaration; `reserved`: names of parameters that every training has.

    Raises:
        DeclarationError: the file cannot be read, or is no training file.
    """
    names = _Names(path)
    loop = _kind(names) == "loop"
    for name in REQUIRED if not loop else ():
        if name not in names.functions and name not in names.values:
            expected = f"{', '.join(REQUIRED)}; or train(config, trial), with a loop of its own"
            raise DeclarationError(f"{path}: no function {name}; a training file has {expected}")
    unit = names.literal("UNIT", "samples")
    if not isinstance(unit, str) or not unit.isidentifier():
        names.fail("UNIT", f'UNIT is {unit!r}; expected a word such as "images"')
    parameters, metrics = _parameters(names, reserved, loop), _metrics(names, loop, unit)
    known = LOOP if loop else {**REQUIRED, **OPTIONAL}
    for name, count in known.items():
        if count is not None and name in names.functions:
            _check_arguments(names, name, count)
    if "network" in names.functions and not loop:
        _check_network(names, parameters)
    return Declaration(path, unit, parameters, metrics, [name for name in known if name in names.functions])


class _Names:
    """Assignments and functions at the top of a file; the last one of each name counts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.values: dict[str, ast.expr | None] = {}
        self.functions: dict[str, ast.FunctionDef] = {}
        for node in parsed(path).body:
            match node:
                case ast.Assign(targets=targets, value=value):
                    self.values |= {target.id: value for target in targets if isinstance(target, ast.Name)}
                    nested = (name for target in targets if isinstance(target, ast.Tuple) for name in target.elts)
                    self.values |= {name.id: None for name in nested if isinstance(name, ast.Name)}
                case ast.AnnAssign(target=ast.Name(id=name), value=value) if value is not None:
                    self.values[name] = value
                case ast.FunctionDef(name=name):
                    self.functions[name] = node
                case ast.ClassDef(name=name):
                    self.values[name] = None
                case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                    self.values |= {(alias.asname or alias.name): None for alias in aliases}

    def literal(self, name: str, default: Any) -> Any:
        """Return the value of a literal."""
        if (value := self.values.get(name)) is None:
            return default
        return self.evaluated(name, value)

    def evaluated(self, name: str, value: ast.expr) -> Any:
        """Return the value of an expression that must be a literal."""
        try:
            return ast.literal_eval(value)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            self.fail_at(value, f"{name} must have plain values: numbers, strings, true or false")

    def rows(self, name: str, expected: str) -> dict[str, tuple[ast.expr, Any]]:
        """Return expression and value by key of a dictionary; empty if there is none of that name."""
        value = self.values.get(name)
        if value is None:
            return {}
        if not isinstance(value, ast.Dict) or None in value.keys:
            self.fail_at(value, f"{name} must be a dictionary written out, {expected}")
        found = {}
        for key, item in zip(value.keys, value.values, strict=True):
            assert key is not None
            text = self.evaluated(name, key)
            if not isinstance(text, str) or not text.isidentifier():
                self.fail_at(key, f"{name}: {text!r} is no name")
            found[text] = item, self.evaluated(f"{name}: {text}", item)
        return found

    def fail(self, name: str, message: str) -> NoReturn:
        """Raise an error at the place of a name."""
        self.fail_at(self.values.get(name) or self.functions[name], message)

    def fail_at(self, node: ast.expr | ast.stmt, message: str) -> NoReturn:
        """Raise an error at a place."""
        raise DeclarationError(f"{self.path}:{node.lineno}: {message}")


def parsed(path: Path) -> ast.Module:
    """Parse a Python file.

    Raises:
        DeclarationError: it cannot be read, or is no Python.
    """
    try:
        content = path.read_bytes()
        if len(content) > MAX_BYTES:
            raise DeclarationError(f"{path}: more than {MAX_BYTES:,} bytes")
        return ast.parse(content, str(path))
    except SyntaxError as error:
        raise DeclarationError(f"{path}:{error.lineno or 1}: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise DeclarationError(f"{path}: no Python: {error}") from None
    except OSError as error:
        raise DeclarationError(f"{path}: {error.strerror}") from None


def _parameters(names: _Names, reserved: Collection[str], loop: bool) -> dict[str, Parameter]:
    found = {}
    for name, (place, value) in names.rows("PARAMETERS", 'as {"dropout": 0.0}').items():
        if name in reserved:
            remedy = "leave it out here and name it in the space file" if loop else "choose another name"
            names.fail_at(place, f'PARAMETERS: every training has "{name}" already; {remedy}')
        if keyword.iskeyword(name) and not loop:  # a loop takes no parameter by name
            names.fail_at(place, f'PARAMETERS: "{name}" is a word of Python; choose another name')
        try:
            found[name] = _parameter(value)
        except ValueError as error:
            names.fail_at(place, f"PARAMETERS: {name}: {error}")
    return found


def _parameter(value: Any) -> Parameter:
    details = value if isinstance(value, dict) else {"default": value}
    for key in details:
        if key not in DETAILS:
            raise ValueError(f'unknown "{key}"{did_you_mean(key, DETAILS)}')
    if "default" not in details:
        raise ValueError('no "default"')
    default, choices = details["default"], details.get("choices") or ()
    if not isinstance(choices, (list, tuple, set)):
        raise ValueError(f"choices is {choices!r}, no list")
    if type(default) not in TYPE_NAMES:
        raise ValueError(f"{default!r} is no number, string, True or False")
    if choices and default not in choices:
        raise ValueError(f"the default {default!r} is not among the choices")
    if any(type(choice) is not type(default) for choice in choices):
        raise ValueError(f"all choices must be of the type of the default, {type(default).__name__}")
    affects = details.get("affects", "all")
    if affects not in ("all", "probed", "trained"):
        raise ValueError(f'affects is {affects!r}; expected "all", "probed" or "trained"')
    low, high = _limits(details, default)
    help = f"{details.get('help', '')}"
    kind = TYPE_NAMES[type(default)]
    return Parameter(kind, cast(Scalar, default), help, tuple(choices), low, high, cast(Affects, affects))


def _limits(details: Mapping[str, Any], default: Any) -> tuple[float | None, float | None]:
    low, high = details.get("low"), details.get("high")
    for limit in (low, high):
        if limit is not None and (type(limit) not in (int, float) or type(default) not in (int, float)):
            raise ValueError(f"the limit {limit!r} needs numbers")
    if (low is not None and default < low) or (high is not None and default > high):
        raise ValueError(f"the default {default!r} is outside its limits")
    return low, high


def _metrics(names: _Names, loop: bool, unit: str) -> dict[str, Metric]:
    found = {}
    places = dict[str, ast.expr]()
    help = "as the loop reports it after the epoch" if loop else "mean over the validation samples, after the epoch"
    for name, (place, stated) in names.rows("METRICS", 'as {"val_loss": "nats"}').items():
        if not loop and (not name.startswith("val_") or name == "val_"):
            names.fail_at(place, f'METRICS: "{name}" must begin with val_, as it is measured on the validation samples')
        details = stated if isinstance(stated, dict) else {"unit": stated}
        if not isinstance(details.get("unit"), str):
            names.fail_at(place, f'METRICS: {name}: {stated!r} is no unit; expected a string, such as "fraction"')
        if details["unit"].lower() in (*ROLES, "max", "min"):
            expected = '{"unit": "1", "goal": "maximize"}'
            names.fail_at(place, f"METRICS: {name}: {stated!r} is no unit; expected as in {expected}")
        if set(details) - {"unit", "goal"} or details.get("goal") not in (None, *ROLES):
            expected = '{"unit": "m", "goal": "minimize"} or "maximize"'
            names.fail_at(place, f"METRICS: {name}: {stated!r}; expected a unit, or {expected}")
        if name.startswith("test_"):
            names.fail_at(place, f'METRICS: "{name}": names that begin with test_ are those of the test samples')
        if name in common_metrics(unit) or name in ("epoch", "checkpoint"):
            names.fail_at(place, f'METRICS: every training has "{name}" already; choose another name')
        places[name] = place
        found[name] = Metric(details["unit"], help, probed=False, role=ROLES.get(details.get("goal", "")))
    for name in found:
        for end in ("low", "high"):
            if f"{name}_{end}" in found:
                names.fail_at(places[f"{name}_{end}"], f'METRICS: "{name}_{end}" is the end of an interval of {name}')
    if not found:
        raise DeclarationError(f'{names.path}: no METRICS; expected names with units, as {{"val_loss": "nats"}}')
    return found


def _check_arguments(names: _Names, name: str, count: int) -> None:
    """Check that a function can be called with so many arguments."""
    arguments = names.functions[name].args
    positional = len(arguments.posonlyargs) + len(arguments.args)
    required = positional - len(arguments.defaults)
    needed_by_name = [a.arg for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is None]
    if required > count or (positional < count and arguments.vararg is None) or needed_by_name:
        names.fail(name, f"{name} must take {ARGUMENTS[name]}")


def _check_network(names: _Names, parameters: Collection[str]) -> None:
    """Check that the arguments of `network` are the parameters."""
    arguments = names.functions["network"].args
    if arguments.posonlyargs:
        names.fail("network", "network must take its arguments by name")
    known = [a.arg for a in (*arguments.args, *arguments.kwonlyargs)]
    defaults = len(arguments.defaults)
    optional = {a.arg for a in arguments.args[len(arguments.args) - defaults :]}
    optional |= {a.arg for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None}
    for name in known:
        if name not in parameters and name not in optional:
            names.fail("network", f'network takes "{name}", which PARAMETERS does not declare')
    for name in parameters:
        if name not in known and arguments.kwarg is None:
            names.fail("network", f'PARAMETERS declares "{name}", which network does not take')
