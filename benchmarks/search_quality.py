"""Search quality: the Advisor beside other methods on recorded problems, at equal cost.

    python benchmarks/search_quality.py --problems ../shared/bench [--seeds 10] [--cache FILE] [--figure FILE.png]
    python benchmarks/search_quality.py --only toy | scale | decoupled

`out_of_memory.py`, `scale.py` and `decoupling.py` describe the second form. In the first form, the folder holds a
`mobench.py` with `NAMES` and `load(name)`. There are four settings: `full` has a budget of full runs for each family;
`short` has a budget of 20 full runs (1,040 epochs of lcbench); `noisy` is `full` with errors in all that the methods
hear (`noise.py`), where the score is of the true values. In these, early stopping can divide the budget among more
trials: the Advisor does that by default, other methods that do are only in `short` unless --methods names them. `four`
is `full` with four trials running at any time, each trained to its end. --parts is the Advisor with each of its parts
taken out (`our_methods.py`).

The cost is the number of epochs, in full runs; only trials that were trained to the end count. A score is the
hypervolume on (accuracy, log10 throughput), relative to the best known front. Tables give mean and standard deviation
over problems and seeds. Syne Tune, SMAC and Ax (qLogNEHVI of BoTorch) are left out unless they are installed (`pip
install syne-tune smac ax-platform`); the figure needs matplotlib. A cache stores each search: a second call runs only
what is new, and the Advisor again if its code has changed. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # arrays of a few hundred rows: threads only interfere

import decoupling
import numpy as np
import out_of_memory
import scale
from baselines import METHODS, OURS, STOPPING, WITHOUT_A_PART
from method import Setting
from problems import family
from race import Courses, Race, race_of, run
from recorded import names

RUNS: dict[Setting, dict[str, int]] = {
    "full": {"lcbench": 100, "hpolib": 100, "nmt": 40, "pollux": 40, "vgg19": 40},
    "short": {"lcbench": 20, "nmt": 20, "vgg19": 20},
}
RUNS["noisy"] = RUNS["four"] = RUNS["full"]
FAMILIES = tuple(RUNS["full"])
RIVALS = [method for method in METHODS if method not in WITHOUT_A_PART]
# Methods that stop early make thousands of trials in `full`: one search of Syne Tune takes minutes.
WITHOUT_STOPPING = [method for method in RIVALS if method not in STOPPING]
FITTING: dict[Setting, list[str]] = dict.fromkeys(RUNS, WITHOUT_STOPPING) | {"short": RIVALS}


def main() -> None:
    """Run the benchmark that --only names, or compare the methods."""
    options = _options()
    if options.only == "race":
        _compare_methods(options)
    elif options.only == "toy":
        out_of_memory.main(range(options.first_seed, options.first_seed + options.seeds))
    elif options.only == "scale":
        scale.main()
    else:
        decoupling.main(range(options.first_seed, options.first_seed + options.seeds), options.figure)


def _compare_methods(options: argparse.Namespace) -> None:
    started = time.monotonic()
    races = _races(options)
    courses = Courses(options.cache)
    missing = [race for race in races if race not in courses]
    with ProcessPoolExecutor(options.processes) as pool:
        for race, course in zip(missing, pool.map(run, itertools.repeat(options.problems), missing), strict=True):
            courses.add(race, course)
    figures: dict[str, Any] = {}
    for setting in options.settings:
        here = [race for race in races if race.setting == setting]
        if here:
            figures[setting] = {
                "families": _table(f"{setting}: by family", here, courses, lambda race: family(race.problem)),
                "problems": _table(f"{setting}: by problem", here, courses, lambda race: race.problem),
            }
    if options.figure:
        from curves import draw

        draw(options.figure, {race: courses[race] for race in races})
    conditions = {"python": sys.version.split()[0], **{p: version(p) for p in ("optuna", "ray", "numpy", "moocore")}}
    seconds = round(time.monotonic() - started, 1)
    print(f"mean +- standard deviation, n = problems x {options.seeds} seeds; {seconds} s; {conditions}")
    print(json.dumps({"hypervolume": figures, "seeds": options.seeds, "first_seed": options.first_seed, **conditions}))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=Path, help="folder with a mobench.py")
    parser.add_argument("--only", choices=("race", "toy", "scale", "decoupled"), default="race")
    parser.add_argument("--seeds", type=int, default=10, help="number of seeds (default 10)")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    methods = parser.add_mutually_exclusive_group()
    methods.add_argument("--methods", nargs="+", choices=METHODS, help="default: those that suit the setting")
    methods.add_argument("--parts", action="store_true", help="the Advisor with each of its parts taken out")
    parser.add_argument("--settings", nargs="+", choices=RUNS, default=list(RUNS))
    parser.add_argument("--processes", type=int, choices=(1, 2), default=1)
    parser.add_argument("--cache", type=Path, help="JSON lines, one for each search; new searches are appended")
    parser.add_argument("--figure", type=Path, help="PNG of hypervolume over cost")
    options = parser.parse_args()
    if options.only == "race" and options.problems is None:
        parser.error("--problems is needed")
    return options


def _races(options: argparse.Namespace) -> list[Race]:
    """Return the requested searches that can run, seed by seed, so that partial results are comparable."""
    races, absent = [], set()
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        for setting in options.settings:
            for problem in names(options.problems):
                runs = RUNS[setting].get(family(problem))
                if runs is None or family(problem) not in options.families:
                    continue
                parts = ["ours", *WITHOUT_A_PART] if options.parts else None
                for method in options.methods or parts or FITTING[setting]:
                    race = race_of(problem, setting, runs, method, seed)
                    if race is None:
                        absent.add(method)
                    else:
                        races.append(race)
    for method in sorted(absent):
        print(f"{method}: left out, its package is not installed", file=sys.stderr)
    return races


def _table(title: str, races: Sequence[Race], courses: Courses, group_of: Callable[[Race], str]) -> dict[str, Any]:
    """Print mean and standard deviation for each method and group, and our lead over the best other method."""
    methods = list(dict.fromkeys(race.method for race in races))
    groups = list(dict.fromkeys(map(group_of, races)))
    figures: dict[str, Any] = {}
    for group in groups:
        finals = {
            method: [courses[race].final for race in races if race.method == method and group_of(race) == group]
            for method in methods
        }
        figures[group] = {
            method: {"mean": round(statistics.mean(values), 4), "sd": round(statistics.pstdev(values), 4)}
            for method, values in finals.items()
        }
        figures[group] |= _lead(finals)
    runs = {group_of(race): race.runs for race in races}
    print(f"\n{title:25s}" + "".join(group[:17].rjust(18) for group in groups))
    print(f"{'budget in full runs':25s}" + "".join(f"{runs[group]}".rjust(18) for group in groups))
    for method in methods:
        cells = [f"{figures[group][method]['mean']:.3f} +- {figures[group][method]['sd']:.3f}" for group in groups]
        print(f"{method:25s}" + "".join(cell.rjust(18) for cell in cells))
    leads = [figures[group].get("lead") for group in groups]
    if all(leads):
        cells = [f"{lead['mean']:+.3f} +- {lead['standard_error'] or 0:.3f}" for lead in leads]
        print(f"{'ours - best other':25s}" + "".join(cell.rjust(18) for cell in cells))
        print(f"{'':25s}" + "".join(lead["over"].removeprefix("optuna_")[:17].rjust(18) for lead in leads))
    return figures


def _lead(finals: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Return our mean minus that of the best other method, and its standard error (None for one search)."""
    others = [method for method in finals if method not in OURS]
    if "ours" not in finals or not others:
        return {}
    best = max(others, key=lambda method: statistics.mean(finals[method]))
    differences = np.subtract(finals["ours"], finals[best])
    several = len(differences) > 1
    error = round(float(differences.std(ddof=1) / len(differences) ** 0.5), 4) if several else None
    return {"lead": {"over": best, "mean": round(float(differences.mean()), 4), "standard_error": error}}


if __name__ == "__main__":
    main()
