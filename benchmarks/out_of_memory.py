"""Share of a search that runs out of memory, on a toy problem whose best configurations do not fit.

A simple formula gives the memory; two fifths of the space need more than there is. A larger batch is faster and a wider
network is more accurate, so both objectives favour configurations that do not fit. The benchmark counts how many of 40
trials run out of memory.

Methods whose names end in `_memory` are told the fraction of the memory that each trial used, and a fraction above 1
for a trial that ran out. The others are told only whether the trial ran.
"""

from __future__ import annotations

import functools
import json
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import optuna
from baselines import METHODS
from constrained import Limit, OptunaConstrained, OursConstrained
from method import Method, Setting
from optuna_methods import TOLD, optuna_tpe
from problems import CANNOT_RUN, Config, Point, Row
from race import trials_of

from search.front.objective import Constraint

TRIALS = 40
CAPACITY_GIB = 3.15
TOO_MUCH = 1.05  # memory fraction reported for a trial that ran out of memory


class Toy:
    """Toy problem of one epoch."""

    name = "toy:out-of-memory"
    space: Mapping[str, tuple[Any, ...]] = {
        "batch_size": ("cat", [64, 128, 256, 512, 1024, 2048]),
        "width": ("float", 0.25, 2.0, True),
        "precision": ("cat", ["fp32", "bf16"]),
        "strategy": ("cat", ["single", "ddp", "pipeline"]),
        "learning_rate": ("float", 0.001, 0.5, True),
        "num_workers": ("int", 0, 8, False),
    }
    max_epoch = 1

    def curve(self, config: Config) -> Sequence[Row]:
        """Return one row, or CANNOT_RUN."""
        if needed_gib(config) > CAPACITY_GIB:
            return CANNOT_RUN
        accuracy, rate = outcome(config)
        return [(1, accuracy, rate, 1.0)]

    def hv(self, points: Sequence[Point]) -> float:
        """Raise an error: this benchmark needs no hypervolume."""
        raise NotImplementedError


def needed_gib(config: Config) -> float:
    """Return the memory of the fuller of two devices: activations, and weights with gradients and momentum."""
    activation_bytes = 4 if config["precision"] == "fp32" else 2
    share = 1.0 if config["strategy"] == "single" else 0.5
    activations = config["batch_size"] * 4.0e6 * config["width"] * activation_bytes * share
    weights = 12 * 20e6 * config["width"] ** 2 * (0.5 if config["strategy"] == "pipeline" else 1.0)
    return float((activations + weights) / 2**30) + 0.5


def outcome(config: Config) -> Point:
    """Return accuracy and images per second."""
    rate = 20000 / config["width"] ** 1.5 * config["batch_size"] / (config["batch_size"] + 256)
    rate *= {"fp32": 1.0, "bf16": 1.8}[config["precision"]]
    rate *= {"single": 1.0, "ddp": 1.7, "pipeline": 1.4}[config["strategy"]] * min(1.0, (1 + config["num_workers"]) / 4)
    missed = 0.1 * abs(math.log10(config["learning_rate"] / 0.1)) + 0.01 * math.log2(config["batch_size"] / 64)
    return 0.95 - 0.15 * math.exp(-1.5 * config["width"]) - missed, rate


def memory_fraction(config: Config) -> float:
    """Return the used fraction of the memory, or TOO_MUCH where the trial ran out."""
    fraction = needed_gib(config) / CAPACITY_GIB
    return fraction if fraction <= 1 else TOO_MUCH


LIMIT = Limit(Constraint("memory_fraction", "<=", 1.0), lambda config, _: memory_fraction(config))


def methods_of() -> Mapping[str, Callable[[Any, int, int, Setting], Method]]:
    """Return the methods by name."""
    told: Mapping[str, Callable[[Any, int, int, Setting], Method]] = {
        "ours_memory": functools.partial(OursConstrained, limit=LIMIT),
        "optuna_tpe_memory": lambda *search: OptunaConstrained(optuna_tpe(*search), LIMIT),
    }
    return {"ours": METHODS["ours"], "random": METHODS["random"], **TOLD, **told}


def main(seeds: Iterable[int]) -> None:
    """Print the share of trials that run out of memory, by method; the last line is one JSON object."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    methods = methods_of()
    seeds = list(seeds)
    shares = {name: [lost(name, seed) for seed in seeds] for name in methods}
    figures = {
        name: {"mean": round(statistics.mean(values), 4), "sd": round(statistics.pstdev(values), 4)}
        for name, values in shares.items()
    }
    print(f"share of {TRIALS} trials that ran out of memory, mean +- standard deviation of {len(seeds)} seeds")
    for name, figure in figures.items():
        print(f"{name:27s} {figure['mean']:.3f} +- {figure['sd']:.3f}")
    print(json.dumps({"out_of_memory_share": figures, "trials": TRIALS, "seeds": len(seeds)}))


def lost(method: str, seed: int) -> float:
    """Return the share of trials that ran out of memory."""
    problem = Toy()
    search = methods_of()[method](problem, TRIALS, seed, "full")
    return sum(point is None for _, point in trials_of(problem, search, TRIALS)) / TRIALS
