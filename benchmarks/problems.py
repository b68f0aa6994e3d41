"""Recorded search problems behind one interface: whole learning curves are looked up, nothing is trained.

`load(folder, name)` takes them from a `mobench.py` in `folder`; the family `vgg19` is the table of our own.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import numpy as np

Config = Mapping[str, Any]
Point = tuple[float, float]  # accuracy, throughput; higher is better in both
Row = tuple[int, float, float, float]  # epoch, accuracy, throughput, seconds from the start

CANNOT_RUN = [(1, 0.0, 0.0, 0.0)]  # the curve of a setting that cannot run, as `mobench.py` gives it
METRICS = ("accuracy", "throughput")


class Searched(Protocol):
    """What is searched. `space`: name -> ("cat", values) or ("int" or "float", low, high, log).

    One of our own may have `when` too, as a space file says it: name -> the values of others with which it counts.
    """

    name: str
    space: Mapping[str, tuple[Any, ...]]


class Problem(Searched, Protocol):
    """A recorded one."""

    max_epoch: int

    def curve(self, config: Config) -> Sequence[Row]:
        """What training `config` to its end reports, epoch by epoch."""
        ...

    def hv(self, points: Sequence[Point]) -> float:
        """Hypervolume of `points` on (accuracy, log10 throughput) over that of the best known front."""
        ...


def names(folder: Path) -> list[str]:
    """Every problem of the folder, as family:instance, and ours where it has been recorded."""
    from vgg19_table import Vgg19Table, is_recorded

    return [*_mobench(folder).NAMES, *([Vgg19Table.name] if is_recorded() else [])]


def load(folder: Path, name: str) -> Problem:
    """The problem of that name."""
    from vgg19_table import Vgg19Table

    problem: Problem = Vgg19Table() if name == Vgg19Table.name else _mobench(folder).load(name)
    return problem


def family(name: str) -> str:
    """What stands before the colon."""
    return name.split(":")[0]


def space_mapping(problem: Searched, **sections: Any) -> dict[str, Any]:
    """A problem in the words of a space file; `sections` are added, such as `budget`."""
    when = getattr(problem, "when", {})
    return {
        "objectives": [{"metric": metric, "goal": "maximize"} for metric in METRICS],
        "parameters": {
            name: _parameter(*details) | ({"when": when[name]} if name in when else {})
            for name, details in problem.space.items()
        },
        **sections,
    }


def sample(problem: Searched, generator: np.random.Generator) -> dict[str, Any]:
    """A configuration drawn evenly, on a logarithmic scale where the space says so."""
    return {name: _drawn(generator, *details) for name, details in problem.space.items()}


def _parameter(kind: str, *details: Any) -> dict[str, Any]:
    if kind == "cat":
        return {"values": list(details[0])}
    low, high, log = details
    return {"min": low, "max": high, "log": log, "type": kind}


def _drawn(generator: np.random.Generator, kind: str, *details: Any) -> Any:
    if kind == "cat":
        return details[0][int(generator.integers(len(details[0])))]
    low, high, log = details
    share = generator.random()
    value = low * (high / low) ** share if log else low + share * (high - low)
    return min(high, max(low, round(value))) if kind == "int" else value


@cache
def _mobench(folder: Path) -> ModuleType:
    path = folder / "mobench.py"
    spec = importlib.util.spec_from_file_location("mobench", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise SystemExit(f"{folder}: no mobench.py there")
    module = importlib.util.module_from_spec(spec)
    sys.modules["mobench"] = module
    spec.loader.exec_module(module)
    return module
