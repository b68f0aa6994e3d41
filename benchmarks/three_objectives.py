"""Searches for three objectives on recorded problems: accuracy, throughput and number of weights.

    python benchmarks/three_objectives.py --problems ../shared/bench [--seeds 5]

`nmt` has the number of weights as recorded, for `hpolib` two layer widths give it. All methods are told the logarithms
of throughput and weights but ours, which chooses scales itself. The score is the hypervolume on (accuracy, log
throughput, log weights) below the medians of all recorded configurations, relative to that of all of them.
`scalarized` is the Advisor with random scalarizations in place of the exact improvement. The last line is one JSON
object.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any
from unittest import mock

os.environ.setdefault("OMP_NUM_THREADS", "1")  # arrays of a few hundred rows: threads only interfere

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna_methods import distributions
from problems import Config, Problem, all_configs, family, sample, space_mapping
from recorded import load, names

from search.advisor import acquisition
from search.advisor.advisor import Advisor
from search.front.pareto import hypervolume
from search.space.parsing import parse_space

RUNS = {"nmt": 40, "hpolib": 100}
SLOWEST = 1e-5  # throughput; a few rows have none
HPOLIB_INPUTS = 9  # features of protein_structure
OBJECTIVES = ({"metric": "accuracy", "goal": "maximize"}, {"metric": "throughput", "goal": "maximize"})
WEIGHTS = {"metric": "weights", "goal": "minimize"}
Measured = tuple[float, float, float]  # accuracy, throughput, weights


class Recorded:
    """Recorded problem with its weights, and the score of what a search found."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        losses = _losses([self.measured(config) for config in all_configs(problem)])
        self._corner = np.median(losses, axis=0)
        self._most = hypervolume(losses, self._corner)

    def measured(self, config: Config) -> Measured:
        """Return the objectives of a configuration at full length."""
        _, accuracy, throughput, _ = self.problem.curve(config)[-1]
        return accuracy, throughput, num_weights(self.problem, config)

    def score(self, found: list[Measured]) -> float:
        """Return the hypervolume of these, relative to that of all configurations."""
        return hypervolume(_losses(found), self._corner) / self._most


def num_weights(problem: Problem, config: Config) -> float:
    """Return the number of weights of a configuration's network."""
    if family(problem.name) == "hpolib":
        first, second = config["n_units_1"], config["n_units_2"]
        return float((HPOLIB_INPUTS + 1) * first + (first + 1) * second + second + 1)
    rows: Any = problem  # its table, which the interface of problems does not have
    return float(rows.rows[rows._i(config)]["num_param"])


def main() -> None:
    """Run the searches and print a table; the last line is one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=Path, required=True, help="folder with a mobench.py")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    print("| problem | method | hypervolume (standard error) | s a search |")
    print("| --- | --- | ---: | ---: |")
    for name in (name for name in names(options.problems) if family(name) in RUNS):
        recorded, runs = Recorded(load(options.problems, name)), RUNS[family(name)]
        for method in options.methods:
            started, scores = time.perf_counter(), list[float]()
            for seed in range(options.seeds):
                search = METHODS[method](recorded, runs, seed)
                scores.append(recorded.score([next(search) for _ in range(runs)]))
                search.close()
            seconds = (time.perf_counter() - started) / options.seeds
            error = statistics.stdev(scores) / len(scores) ** 0.5 if len(scores) > 1 else 0.0
            print(f"| {name} | {method} | {statistics.mean(scores):.3f} ({error:.3f}) | {seconds:.1f} |", flush=True)
            figures[f"{name} {method}"] = scores
    print(json.dumps({"three_objectives": figures, "seeds": options.seeds}))


def _losses(found: list[Measured]) -> NDArray[np.float64]:
    table = np.array(found)
    rates = np.maximum(table[:, 1], SLOWEST)
    return np.stack([-table[:, 0], -np.log10(rates), np.log10(table[:, 2])], axis=1)


def _ours(recorded: Recorded, runs: int, seed: int) -> Generator[Measured]:
    mapping = space_mapping(recorded.problem, budget={"trials": runs}) | {"objectives": [*OBJECTIVES, WEIGHTS]}
    advisor = Advisor(parse_space(mapping), seed=seed)
    while (proposal := advisor.propose()) is not None:
        found = recorded.measured(proposal.config)
        advisor.observe(proposal.trial_id, 1, dict(zip(("accuracy", "throughput", "weights"), found, strict=True)))
        advisor.finish(proposal.trial_id, "complete")
        yield found


def _scalarized(recorded: Recorded, runs: int, seed: int) -> Generator[Measured]:
    with mock.patch.object(acquisition, "MOST_EXACT", 2):
        yield from _ours(recorded, runs, seed)


def _optuna(
    sampler: Callable[..., optuna.samplers.BaseSampler],
) -> Callable[[Recorded, int, int], Generator[Measured]]:
    def search(recorded: Recorded, runs: int, seed: int) -> Generator[Measured]:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        study = optuna.create_study(directions=["minimize"] * 3, sampler=sampler(seed=seed))
        for _ in range(runs):
            trial = study.ask(distributions(recorded.problem))
            found = recorded.measured(trial.params)
            study.tell(trial, _losses([found])[0].tolist())
            yield found

    return search


def _random(recorded: Recorded, runs: int, seed: int) -> Generator[Measured]:
    generator = np.random.default_rng(seed)
    return (recorded.measured(sample(recorded.problem, generator)) for _ in range(runs))


METHODS: dict[str, Callable[[Recorded, int, int], Generator[Measured]]] = {
    "ours": _ours,
    "scalarized": _scalarized,
    "optuna_gp": _optuna(optuna.samplers.GPSampler),
    "optuna_tpe": _optuna(optuna.samplers.TPESampler),
    "random": _random,
}


if __name__ == "__main__":
    main()
