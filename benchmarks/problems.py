"""Interface of recorded search problems: learning curves are looked up, nothing is trained."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

Config = Mapping[str, Any]
Point = tuple[float, float]  # accuracy, throughput; higher is better in both
Row = tuple[int, float, float, float]  # epoch, accuracy, throughput, seconds from the start

CANNOT_RUN = [(1, 0.0, 0.0, 0.0)]  # curve of a configuration that cannot run
METRICS = ("accuracy", "throughput")


class Searched(Protocol):
    """Search space. `space`: name -> ("cat", values) or ("int" or "float", low, high, log).

    Optional: `when`, as in a space file: name -> values of other parameters that make it active; `affects`: name ->
    "probed", "trained" or "all", where it is known which settings affect the throughput and which the accuracy.
    """

    name: str
    space: Mapping[str, tuple[Any, ...]]


class Problem(Searched, Protocol):
    """Recorded problem."""

    max_epoch: int

    def curve(self, config: Config) -> Sequence[Row]:
        """Return one row for each epoch of a complete training of `config`."""
        ...

    def hv(self, points: Sequence[Point]) -> float:
        """Return the hypervolume of `points` on (accuracy, log10 throughput), relative to the best known front."""
        ...


def family(name: str) -> str:
    """Return the part of a problem's name before the colon."""
    return name.split(":")[0]


def space_mapping(problem: Searched, **sections: Any) -> dict[str, Any]:
    """Return the mapping of a space file for the problem; `sections` such as `budget` are added."""
    parameters: dict[str, dict[str, Any]] = {}
    for name, (kind, *details) in problem.space.items():
        if kind == "cat":
            parameters[name] = {"values": list(details[0])}
        else:
            parameters[name] = dict(zip(("min", "max", "log"), details, strict=True)) | {"type": kind}
    for name, condition in getattr(problem, "when", {}).items():
        parameters[name]["when"] = condition
    objectives: list[dict[str, Any]] = [{"metric": metric, "goal": "maximize"} for metric in METRICS]
    if affects := getattr(problem, "affects", {}):
        objectives[1]["probed"] = True
        for name, what in affects.items():
            parameters[name]["affects"] = what
    return {"objectives": objectives, "parameters": parameters, **sections}


def sample(problem: Searched, generator: np.random.Generator) -> dict[str, Any]:
    """Draw a configuration uniformly, on a logarithmic scale where the space says so."""
    config: dict[str, Any] = {}
    for name, (kind, *details) in problem.space.items():
        if kind == "cat":
            config[name] = details[0][int(generator.integers(len(details[0])))]
            continue
        low, high, log = details
        share = generator.random()
        value = low * (high / low) ** share if log else low + share * (high - low)
        config[name] = min(high, max(low, round(value))) if kind == "int" else value
    return config


def all_configs(problem: Searched) -> list[Config]:
    """Return every configuration of a space that has choices alone."""
    choices = itertools.product(*(values for _, values in problem.space.values()))
    return [dict(zip(problem.space, choice, strict=True)) for choice in choices]
