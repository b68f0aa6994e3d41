"""Is the Advisor as good as Optuna's own TPE? Both, and random search, on recorded problems at full fidelity.

    python benchmarks/advisor.py --problems ../shared/bench --seeds 10

The folder holds a `mobench.py` with `NAMES` and `load(name)`. Nothing is trained, whole curves are looked
up. A score is the hypervolume on (accuracy, log10 throughput) after the family's number of runs, over that of the best
known front. The table gives its mean over problems and seeds with the standard deviation over them; the last line is
one JSON object with the same figures. The function `advisor` shows how to drive an Advisor on a foreign problem.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import os
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # arrays of a few hundred rows: threads only get into each other's way

import optuna

from search.advisor import Advisor
from search.space import Space, parse_space

RUNS = {"lcbench": 100, "hpolib": 100, "nmt": 40, "pollux": 40}
METHODS = ("random", "optuna_tpe", "advisor")

Point = tuple[float, float]  # accuracy, throughput; higher is better in both


def advisor(problem: Any, runs: int, seed: int, searcher: str = "tpe") -> list[Point]:
    """What the Advisor finds: propose, observe each epoch, finish."""
    mind = Advisor(space_of(problem, runs, searcher), seed=seed)
    found = []
    while (proposal := mind.propose()) is not None:
        curve = problem.curve(proposal.config)
        if curve == [(1, 0.0, 0.0, 0.0)]:  # how the recorded problems say that a setting cannot run
            mind.finish(proposal.trial_id, "infeasible", "cannot run")
            continue
        for epoch, accuracy, throughput, _ in curve:
            mind.observe(proposal.trial_id, epoch, {"accuracy": accuracy, "throughput": throughput})
        mind.finish(proposal.trial_id, "complete")
        found.append((accuracy, throughput))
    return found


def optuna_tpe(problem: Any, runs: int, seed: int) -> list[Point]:
    """What Optuna's TPE finds as it comes out of the box, told every value as it is."""
    study = optuna.create_study(directions=["maximize", "maximize"], sampler=optuna.samplers.TPESampler(seed=seed))
    found = []
    for _ in range(runs):
        trial = study.ask()
        config = {name: _suggest(trial, name, *parameter) for name, parameter in problem.space.items()}
        found.append(problem.final(config))
        study.tell(trial, found[-1])
    return found


def random(problem: Any, runs: int, seed: int) -> list[Point]:
    """What chance finds."""
    return advisor(problem, runs, seed, searcher="random")


def space_of(problem: Any, runs: int, searcher: str) -> Space:
    """A recorded problem in the words of a space file."""
    return parse_space(
        {
            "objectives": [
                {"metric": "accuracy", "goal": "maximize"},
                {"metric": "throughput", "goal": "maximize"},
            ],
            "parameters": {name: _parameter(*parameter) for name, parameter in problem.space.items()},
            "searcher": {"name": searcher},
            "budget": {"trials": runs, "epochs": problem.max_epoch},
        }
    )


def _parameter(kind: str, *details: Any) -> dict[str, Any]:
    if kind == "cat":
        return {"values": list(details[0])}
    low, high, log = details
    return {"min": low, "max": high, "log": log, "type": kind}


def _suggest(trial: optuna.Trial, name: str, kind: str, *details: Any) -> Any:
    if kind == "cat":
        return trial.suggest_categorical(name, details[0])
    low, high, log = details
    return (trial.suggest_int if kind == "int" else trial.suggest_float)(name, low, high, log=log)


def load_problems(folder: Path) -> ModuleType:
    """`mobench.py` of the folder as a module."""
    spec = importlib.util.spec_from_file_location("mobench", folder / "mobench.py")
    if spec is None or spec.loader is None or not (folder / "mobench.py").is_file():
        raise SystemExit(f"{folder}: no mobench.py there")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def score(task: tuple[Path, str, str, int]) -> float:
    """Hypervolume that one method reaches on one problem with one seed, 1 being the best known front's."""
    folder, name, method, seed = task
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    problem = load_problems(folder).load(name)
    methods = {"random": random, "optuna_tpe": optuna_tpe, "advisor": advisor}
    return float(problem.hv(methods[method](problem, RUNS[name.split(":")[0]], seed)))


def main() -> None:
    """Print the table, and the figures as JSON in the last line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=Path, required=True, help="folder with a mobench.py")
    parser.add_argument("--seeds", type=int, default=10, help="seeds 0 to n-1 (default 10)")
    parser.add_argument("--families", nargs="+", choices=RUNS, default=list(RUNS))
    parser.add_argument("--processes", type=int, choices=(1, 2), default=2)
    options = parser.parse_args()

    names = [n for n in load_problems(options.problems).NAMES if n.split(":")[0] in options.families]
    tasks = [
        (options.problems, name, method, seed)
        for name, method, seed in itertools.product(names, METHODS, range(options.seeds))
    ]
    started = time.monotonic()
    with ProcessPoolExecutor(options.processes) as pool:
        scores = dict(zip(tasks, pool.map(score, tasks), strict=True))
    seconds = time.monotonic() - started

    figures: dict[str, Any] = {}
    print(f"{'family':10s} {'problems':>8s} {'runs':>5s} " + " ".join(f"{method:>15s}" for method in METHODS))
    for family in options.families:
        columns = {
            method: [s for (_, name, m, _), s in scores.items() if name.split(":")[0] == family and m == method]
            for method in METHODS
        }
        figures[family] = {m: {"mean": statistics.mean(c), "sd": statistics.pstdev(c)} for m, c in columns.items()}
        cells = " ".join(f"{f['mean']:.3f} +- {f['sd']:.3f}".rjust(15) for f in figures[family].values())
        problems = sum(name.split(":")[0] == family for name in names)
        print(f"{family:10s} {problems:8d} {RUNS[family]:5d} {cells}")
    versions = {"python": sys.version.split()[0], **{p: version(p) for p in ("optuna", "numpy", "moocore")}}
    print(f"mean +- standard deviation, n = problems x {options.seeds} seeds; {seconds:.0f} s; {versions}")
    print(json.dumps({"hypervolume": figures, "seeds": options.seeds, "seconds": round(seconds, 1), **versions}))


if __name__ == "__main__":
    main()
