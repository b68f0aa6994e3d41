"""Does the Advisor find more than what a user would take instead? Recorded problems, at equal cost.

    python benchmarks/search_quality.py --problems ../shared/bench [--seeds 10] [--cache FILE] [--figure FILE.png]
    python benchmarks/search_quality.py --only toy | scale | decoupled

The second kind is explained in `out_of_memory.py`, `scale.py` and `decoupling.py`. For the first, the folder holds a
`mobench.py` with `NAMES` and `load(name)`. Two settings: `full` is worth a number of full runs by family, `short` on
lcbench is worth 20 of them (1,040 epochs), from which stopping early can make more trials; methods that stop are in
`full` only if named by --methods. Cost is the epochs spent, in full runs; only trials that were trained to their end
count. A score is the hypervolume on (accuracy, log10 throughput) over that of the best known front. Tables give mean
and standard deviation over problems and seeds. Syne Tune is left out unless `pip install syne-tune`; the figure needs
matplotlib. A cache keeps each search, so that a second call runs only what is new: the Advisor again where its code has
changed, the others never. The last line is one JSON object with the same figures.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # arrays of a few hundred rows: threads only get into each other's way

import decoupling
import numpy as np
import out_of_memory
import scale
from baselines import METHODS, OURS, STOPPING, Setting
from problems import family, names
from race import Race, Records, race_of, run

RUNS: dict[Setting, dict[str, int]] = {
    "full": {"lcbench": 100, "hpolib": 100, "nmt": 40, "pollux": 40, "vgg19": 40},
    "short": {"lcbench": 20},
}
FAMILIES = tuple(RUNS["full"])
# With so many epochs those that stop make thousands of trials: Syne Tune's takes minutes for one such search
FITTING: dict[Setting, list[str]] = {"full": [m for m in METHODS if m not in STOPPING], "short": list(METHODS)}


def main() -> None:
    """Print tables, and the figures as JSON in the last line."""
    options = _options()
    if options.only == "race":
        _races_and_tables(options)
    elif options.only == "toy":
        out_of_memory.main(range(options.first_seed, options.first_seed + options.seeds))
    elif options.only == "scale":
        scale.main()
    else:
        decoupling.main(range(options.first_seed, options.first_seed + options.seeds), options.figure)


def _races_and_tables(options: argparse.Namespace) -> None:
    started = time.monotonic()
    races = _races(options)
    records = Records(options.cache)
    _run_missing(options.problems, races, records, options.processes)
    figures: dict[str, Any] = {}
    for setting in options.settings:
        here = [race for race in races if race.setting == setting]
        if here:
            figures[setting] = {
                "families": _table(f"{setting}: by family", here, records, lambda race: family(race.problem)),
                "problems": _table(f"{setting}: by problem", here, records, lambda race: race.problem),
            }
    if options.figure:
        from curves import draw

        draw(options.figure, {race: records[race] for race in races})
    conditions = {"python": sys.version.split()[0], **{p: version(p) for p in ("optuna", "ray", "numpy", "moocore")}}
    seconds = round(time.monotonic() - started, 1)
    print(f"mean +- standard deviation, n = problems x {options.seeds} seeds; {seconds} s; {conditions}")
    print(json.dumps({"hypervolume": figures, "seeds": options.seeds, "first_seed": options.first_seed, **conditions}))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=Path, help="folder with a mobench.py")
    parser.add_argument("--only", choices=("race", "toy", "scale", "decoupled"), default="race")
    parser.add_argument("--seeds", type=int, default=10, help="how many (default 10)")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--methods", nargs="+", choices=METHODS, help="default: all that fit the setting")
    parser.add_argument("--settings", nargs="+", choices=RUNS, default=list(RUNS))
    parser.add_argument("--processes", type=int, choices=(1, 2), default=1)
    parser.add_argument("--cache", type=Path, help="JSON lines, one for each search; added to")
    parser.add_argument("--figure", type=Path, help="PNG of hypervolume over cost")
    options = parser.parse_args()
    if options.only == "race" and options.problems is None:
        parser.error("--problems is needed")
    return options


def _races(options: argparse.Namespace) -> list[Race]:
    """All that is asked for and can be run, seed by seed, so that what is done early is already comparable."""
    races, absent = [], set()
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        for setting in options.settings:
            for problem in names(options.problems):
                runs = RUNS[setting].get(family(problem))
                if runs is None or family(problem) not in options.families:
                    continue
                for method in options.methods or FITTING[setting]:
                    race = race_of(problem, setting, runs, method, seed)
                    if race is None:
                        absent.add(method)
                    else:
                        races.append(race)
    for method in sorted(absent):
        print(f"{method}: left out, its package is not installed", file=sys.stderr)
    return races


def _run_missing(folder: Path, races: Iterable[Race], records: Records, processes: int) -> None:
    missing = [race for race in races if race not in records]
    with ProcessPoolExecutor(processes) as pool:
        for race, course in zip(missing, pool.map(run, [folder] * len(missing), missing), strict=True):
            records.add(race, course)


def _table(title: str, races: Sequence[Race], records: Records, group_of: Callable[[Race], str]) -> dict[str, Any]:
    """Print one line a method; mean and standard deviation by group and method, and ours minus the best other."""
    methods = list(dict.fromkeys(race.method for race in races))
    groups = list(dict.fromkeys(map(group_of, races)))
    figures: dict[str, Any] = {}
    for group in groups:
        finals = {
            method: [records[race].final for race in races if race.method == method and group_of(race) == group]
            for method in methods
        }
        figures[group] = {
            method: {"mean": round(statistics.mean(values), 4), "sd": round(statistics.pstdev(values), 4)}
            for method, values in finals.items()
        }
        figures[group] |= _lead(finals)
    runs = {group_of(race): race.runs for race in races}
    print(f"\n{title:25s}" + "".join(group[:17].rjust(18) for group in groups))
    print(f"{'worth full runs':25s}" + "".join(f"{runs[group]}".rjust(18) for group in groups))
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
    """Ours minus the best of what is not ours, with the standard error of the difference; None: of one search."""
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
