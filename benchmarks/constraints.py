"""Searches under a constraint on recorded problems, at equal cost.

    python benchmarks/constraints.py --problems ../shared/bench [--seeds 5]

`weights`: at most as many weights as three in ten of all configurations have (`nmt`, `hpolib`). `accuracy`: at least
that which three in ten reach; one of the objectives, and known only after training. Both exclude a large part of the
front. The budget is that of `search_quality.py` in the setting `full`. Only complete trials that satisfy the constraint
count; the score is their hypervolume on (accuracy, log throughput), relative to that of all such configurations, on
`lcbench` of 5,000 random ones, so that it may exceed 1. The `share` is that of the complete trials that satisfy the
constraint. `ours_unaware` is the Advisor without the constraint. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

os.environ.setdefault("OMP_NUM_THREADS", "1")  # arrays of a few hundred rows: threads only interfere

import numpy as np
import optuna
from constrained import Limit, OptunaConstrained, OursConstrained
from method import End, Method, Random
from numpy.typing import NDArray
from optuna_methods import OptunaGP, optuna_nsga2, optuna_tpe
from our_methods import OurAdvisor
from problems import Config, Point, Problem, all_configs, family, sample
from race import trials_of
from recorded import load, names
from three_objectives import RUNS as WITH_WEIGHTS
from three_objectives import SLOWEST, num_weights

from search.advisor.proposal import Proposal
from search.front.objective import Constraint
from search.front.pareto import hypervolume

Kind = Literal["weights", "accuracy"]
RUNS = {"lcbench": 30, "nmt": 40, "hpolib": 100, "vgg19": 40}
KINDS: Mapping[str, tuple[Kind, ...]] = {
    name: ("weights", "accuracy") if name in WITH_WEIGHTS else ("accuracy",) for name in RUNS
}
SATISFY = 0.3  # of all configurations
DRAWN = 5000  # configurations that stand for all, where they are too many


class Bounded:
    """Recorded problem with a constraint, and the score of what a search found."""

    def __init__(self, problem: Problem, kind: Kind) -> None:
        self.problem, self._kind = problem, kind

    @cached_property
    def _everything(self) -> list[tuple[Config, Point]]:
        space, generator = self.problem.space, np.random.default_rng(0)
        if all(kind == "cat" for kind, *_ in space.values()):
            configs = all_configs(self.problem)
        else:
            configs = [sample(self.problem, generator) for _ in range(DRAWN)]
        return [(config, self.problem.curve(config)[-1][1:3]) for config in configs]

    @cached_property
    def limit(self) -> Limit:
        """Constraint that `SATISFY` of all configurations satisfy."""
        if self._kind == "accuracy":
            bound = float(np.quantile([point[0] for _, point in self._everything], 1 - SATISFY))
            return Limit(Constraint("accuracy", ">=", bound), lambda _, point: point[0])
        bound = float(np.quantile([num_weights(self.problem, config) for config, _ in self._everything], SATISFY))
        return Limit(Constraint("weights", "<=", bound), lambda config, _: num_weights(self.problem, config))

    @cached_property
    def _corner(self) -> NDArray[np.float64]:
        """Reference point: the worst quarter of the accuracies and the worst twentieth of the rates do not count."""
        losses = _losses([point for _, point in self._everything])
        return np.array([np.quantile(losses[:, 0], 0.75), np.quantile(losses[:, 1], 0.95)])

    @cached_property
    def _most(self) -> float:
        return self._hypervolume(self._everything)

    def score(self, found: Sequence[tuple[Config, Point]]) -> float:
        """Return the hypervolume of those that satisfy the constraint, relative to that of all configurations."""
        return self._hypervolume(found) / self._most

    def share(self, found: Sequence[tuple[Config, Point]]) -> float:
        """Return the share of those that satisfy the constraint."""
        return len(self._satisfying(found)) / max(1, len(found))

    def _satisfying(self, found: Sequence[tuple[Config, Point]]) -> list[Point]:
        return [point for config, point in found if self.limit.violation(config, point) <= 0]

    def _hypervolume(self, found: Sequence[tuple[Config, Point]]) -> float:
        points = self._satisfying(found)
        return hypervolume(_losses(points), self._corner) if points else 0.0


class _Recorder:
    """Method whose complete trials are kept with their configurations."""

    def __init__(self, method: Method) -> None:
        self._method, self._configs = method, dict[str, Config]()
        self.observe = method.observe
        self.found: list[tuple[Config, Point]] = []

    def propose(self) -> Proposal | None:
        proposal = self._method.propose()
        if proposal:
            self._configs[proposal.trial_id] = proposal.config
        return proposal

    def finish(self, trial_id: str, end: End, point: Point) -> None:
        if end == "complete":
            self.found.append((self._configs[trial_id], point))
        self._method.finish(trial_id, end, point)


METHODS: Mapping[str, Callable[[Problem, int, int, Limit], Method]] = {
    "ours": lambda problem, runs, seed, limit: OursConstrained(problem, runs, seed, "full", limit),
    "ours_unaware": lambda problem, runs, seed, _: OurAdvisor(problem, runs, seed, "full"),
    "optuna_gp": lambda problem, runs, seed, limit: OptunaConstrained(OptunaGP(problem, runs, seed, "full"), limit),
    "optuna_tpe": lambda problem, runs, seed, limit: OptunaConstrained(optuna_tpe(problem, runs, seed, "full"), limit),
    "optuna_nsga2": lambda problem, runs, seed, limit: OptunaConstrained(
        optuna_nsga2(problem, runs, seed, "full"), limit
    ),
    "random": lambda problem, runs, seed, _: Random(problem, runs, seed, "full"),
}


def search(bounded: Bounded, method: str, runs: int, seed: int) -> list[tuple[Config, Point]]:
    """Return the complete trials of a search."""
    recorder = _Recorder(METHODS[method](bounded.problem, runs, seed, bounded.limit))
    for _ in trials_of(bounded.problem, recorder, runs):
        pass
    return recorder.found


def main() -> None:
    """Run the searches and print a table; the last line is one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=Path, required=True, help="folder with a mobench.py")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--families", nargs="+", choices=RUNS, default=list(RUNS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    figures: dict[str, Any] = {}
    print("| problem | constraint | method | hypervolume (standard error) | share | s a search |")
    print("| --- | --- | --- | ---: | ---: | ---: |")
    for name in (name for name in names(options.problems) if family(name) in options.families):
        problem, runs = load(options.problems, name), RUNS[family(name)]
        for kind in KINDS[family(name)]:
            bounded = Bounded(problem, kind)
            for method in options.methods:
                started = time.perf_counter()
                found = [search(bounded, method, runs, seed) for seed in range(options.seeds)]
                seconds = (time.perf_counter() - started) / options.seeds
                scores, shares = [*map(bounded.score, found)], [*map(bounded.share, found)]
                error = statistics.stdev(scores) / len(scores) ** 0.5 if len(scores) > 1 else 0.0
                cells = f"{statistics.mean(scores):.3f} ({error:.3f}) | {statistics.mean(shares):.2f} | {seconds:.1f}"
                print(f"| {name} | {kind} | {method} | {cells} |", flush=True)
                figures[f"{name} {kind} {method}"] = {"hypervolume": scores, "share": shares}
    print(json.dumps({"constraints": figures, "seeds": options.seeds}))


def _losses(points: Sequence[Point]) -> NDArray[np.float64]:
    table = np.array(points)
    return np.column_stack([-table[:, 0], -np.log10(np.maximum(table[:, 1], SLOWEST))])


if __name__ == "__main__":
    main()
