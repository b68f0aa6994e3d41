"""Gain of a search from what is known before it: a user's expectation, or an earlier run on other data.

    python benchmarks/knowledge.py --problems ../shared/bench [--seeds 5] [--families lcbench nmt ...]

`nothing` is a search from zero. `likely` names a third of each numeric parameter around the median of the Pareto front
of 2,000 random configurations, `likely, wrong` the third that is farthest from it. `earlier run` has the measurements
of a search of another problem of the family as those of other data, as far as its values are in the space. In `earlier
run, shuffled` the measurements are those of other configurations. The figure is the hypervolume, relative to the best
known front, after a quarter, a half and all of the trials; mean and standard error of the difference to `nothing` with
the same seed. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # arrays of a few hundred rows: threads only interfere

import numpy as np
from our_methods import OurAdvisor
from problems import METRICS, Point, Problem, family, sample, space_mapping
from race import trials_of
from recorded import load, names

from search.advisor.encoding import Encoding
from search.front.pareto import is_pareto_optimal
from search.record.events import parse
from search.space.parameters import Choice
from search.space.parsing import parse_space

TRIALS = {"lcbench": 40, "hpolib": 40, "nmt": 20, "pollux": 20, "vgg19": 20}
SHARES = (0.25, 0.5, 1.0)  # of the trials, after which a search is looked at
RANDOM = 2000  # configurations, whose Pareto front says what a user could expect
LIKELY = 1 / 3  # of a range
Measured = list[tuple[dict[str, Any], Point]]


def main() -> None:
    """Run the searches and print a table; the last line is one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=Path, required=True, help="folder with a mobench.py")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--families", nargs="+", choices=TRIALS, default=list(TRIALS))
    options = parser.parse_args()
    every = [name for name in names(options.problems) if family(name) in options.families]
    print("| problem | known before | " + " | ".join(f"after {share:.0%} of the trials" for share in SHARES) + " |")
    print("| --- | --- |" + " --- |" * len(SHARES))
    differences: dict[str, list[list[float]]] = {}
    for name in every:
        problem, runs = load(options.problems, name), TRIALS[family(name)]
        nothing = [_course(problem, _advisor(problem, runs, seed), runs)[0] for seed in range(options.seeds)]
        _print(name, "nothing", nothing)
        others = [load(options.problems, other) for other in every if family(other) == family(name) and other != name]
        searches = {
            known: [
                np.subtract(_course(problem, advisor, runs)[0], nothing[seed]).tolist()
                for seed in range(options.seeds)
                for advisor in _advisors(known, problem, others, runs, seed)
            ]
            for known in ("likely", "likely, wrong", "earlier run", "earlier run, shuffled")
        }
        for known, found in searches.items():
            if found:
                _print(name, known, found)
                differences.setdefault(known, []).extend(found)
    for known, found in differences.items():
        _print("all", known, found)
    print(json.dumps({"knowledge": differences, "seeds": options.seeds}))


def _print(name: str, known: str, found: list[list[float]]) -> None:
    form = "{:.3f} ({:.3f})" if known == "nothing" else "{:+.3f} ({:.3f})"
    columns = list(zip(*found, strict=True))
    errors = [statistics.stdev(column) / len(column) ** 0.5 if len(column) > 1 else 0.0 for column in columns]
    cells = [form.format(statistics.mean(column), error) for column, error in zip(columns, errors, strict=True)]
    print(f"| {name} | {known} | {' | '.join(cells)} |", flush=True)


def _advisors(known: str, problem: Problem, others: list[Problem], runs: int, seed: int) -> Iterator[OurAdvisor]:
    """Yield an Advisor with this knowledge, or one for each of the other problems of the family."""
    if known.startswith("likely"):
        parameters = _with_likely(problem, wrong="wrong" in known)
        yield _advisor(problem, runs, seed, parameters=parameters)
        return
    for other in others:
        earlier = _advisor(other, runs, 1000 + seed)
        parameters = parse_space(space_mapping(problem, budget={"trials": 1})).parameters
        measured = [
            (config, point)
            for config, point in _course(other, earlier, runs)[1]
            if all(parameters[name].contains(value) for name, value in config.items())
        ]
        if "shuffled" in known:
            order = np.random.default_rng(seed).permutation(len(measured))
            measured = [(config, measured[i][1]) for (config, _), i in zip(measured, order, strict=True)]
        if not measured:
            continue
        advisor = _advisor(problem, runs, seed)
        measurements = [
            {"config": config, "metrics": {}, "elsewhere": dict(zip(METRICS, point, strict=True)), "source": "other t"}
            for config, point in measured
        ]
        line = json.dumps({"event": "known", "time": 0.0, "measurements": measurements}, default=float)
        advisor.advisor.replay([parse(line.encode())])
        yield advisor


def _advisor(problem: Problem, runs: int, seed: int, **sections: Any) -> OurAdvisor:
    """Return an Advisor that trains as many configurations, each to its end."""
    return OurAdvisor(problem, runs, seed, "four", **sections)  # the setting with a budget in trials


def _course(problem: Problem, method: OurAdvisor, runs: int) -> tuple[list[float], Measured]:
    """Return the hypervolume after each of `SHARES`, and the measured configurations."""
    configs: list[dict[str, Any]] = []
    propose = method.propose

    def noted() -> Any:
        if proposal := propose():
            configs.append(proposal.config)
        return proposal

    method.propose = noted  # type: ignore[method-assign]
    points = [point for _, point in trials_of(problem, method, runs)]
    found = [
        float(problem.hv([point for point in points[: round(share * runs)] if point is not None])) for share in SHARES
    ]
    return found, [(config, point) for config, point in zip(configs, points, strict=True) if point is not None]


def _with_likely(problem: Problem, wrong: bool) -> dict[str, Any]:
    """Return the parameters of the space, each numeric one with a part that is likely."""
    mapping = space_mapping(problem, budget={"trials": 1})
    space = parse_space(mapping)
    parameters: dict[str, Any] = mapping["parameters"]
    generator = np.random.default_rng(0)
    configs = [sample(problem, generator) for _ in range(RANDOM)]
    if getattr(problem, "when", {}):
        configs = [
            {name: config[name] for name in space.parameters if space.active(name, config)} for config in configs
        ]
    finals = [problem.curve(config)[-1] for config in configs]
    points = np.array([(-accuracy, -rate) for _, accuracy, rate, _ in finals])
    optimal = Encoding(space).rows(itertools.compress(configs, is_pareto_optimal(points)))
    for (name, parameter), positions in zip(space.parameters.items(), optimal.T, strict=True):
        if isinstance(parameter, Choice) and not parameter.is_ordinal:
            continue
        last = len(parameter.values) - 1 if isinstance(parameter, Choice) else 1
        middle = float(np.median(positions)) / max(1, last)
        low = min(max(middle - LIKELY / 2, 0.0), 1 - LIKELY)
        if wrong:
            low = 0.0 if middle > 0.5 else 1 - LIKELY
        if isinstance(parameter, Choice):
            inside = range(round(low * last), round((low + LIKELY) * last) + 1)
            parameters[name]["likely"] = [parameter.ordered_values[i] for i in inside]
        elif (ends := [parameter.value_at(low), parameter.value_at(low + LIKELY)])[0] < ends[1]:
            parameters[name]["likely"] = ends
    return parameters


if __name__ == "__main__":
    main()
