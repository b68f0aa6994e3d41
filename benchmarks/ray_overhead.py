"""What the run through Ray costs a training step: the same probes by the search and by the trainable alone.

    python benchmarks/ray_overhead.py --root PICTURES [--rounds 5] [--probes 3] [batch_size=128 precision=bf16 ...]

A round is one search (`search.run`, dashboard on as users have it) with a trial for each probe, and then as many probes
by `trainables.train --probe` with no Ray on the machine; the next round begins with the other way. A rate is the median
of a round's probes; the overhead is what the search's rate is below the other, as the median over the rounds. The last
line is one JSON object.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from trainables.settings import parsed

SPACE = """
trainable: vgg19_cifar10
evaluation: probe
objectives:
  - {{metric: images_per_second, goal: maximize}}
  - {{metric: peak_memory_gib, goal: minimize}}
parameters:
  seed: {{values: {seeds}}}
fixed: {fixed}
data: {data}
searcher: {{name: grid}}
"""


def by_search(settings: dict[str, object], probes: int, data: dict[str, str], folder: Path) -> list[float]:
    """Images per second of each trial."""
    space = folder / "probes.yaml"
    space.write_text(SPACE.format(seeds=list(range(probes)), fixed=json.dumps(settings), data=json.dumps(data)))
    command = [sys.executable, "-m", "search.run", str(space), "--results", str(folder), "--name", "run"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with (folder / "run" / "trials.csv").open(newline="") as file:
        return [float(row["images_per_second"]) for row in csv.DictReader(file)]


def alone(settings: dict[str, object], probes: int, data: dict[str, str], folder: Path) -> list[float]:
    """The same in a process for each probe."""
    rates = []
    place = ["--data", data["name"], *(["--root", data["root"]] if "root" in data else [])]
    for seed in range(probes):
        trial = folder / f"{seed}"
        words = [f"{name}={str(value).lower()}" for name, value in {**settings, "seed": seed}.items()]
        command = [sys.executable, "-m", "trainables.train", "--probe", "--folder", str(trial), *place, *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with (trial / "curves.csv").open(newline="") as file:
            rates += [float(row["images_per_second"]) for row in csv.DictReader(file)]
    return rates


def compare(settings: dict[str, object], rounds: int, probes: int, data: dict[str, str]) -> None:
    """Both ways in turn."""
    print(f"{os.cpu_count()} cores; load {os.getloadavg()[0]:.1f}; {settings or 'the defaults'}; {data['name']}")
    print("| round | by the search, images/s | alone, images/s | overhead |")
    print("| --- | --- | --- | --- |")
    overheads = []
    for number in range(rounds):
        rates = {}
        for way in (by_search, alone) if number % 2 == 0 else (alone, by_search):
            with tempfile.TemporaryDirectory() as folder:
                rates[way] = way(settings, probes, data, Path(folder))
        searched, plain = (statistics.median(rates[way]) for way in (by_search, alone))
        overheads.append(1 - searched / plain)
        print(
            f"| {number + 1} | {_words(rates[by_search])} | {_words(rates[alone])} | {overheads[-1]:.1%} |", flush=True
        )
    median = statistics.median(overheads)
    print(f"overhead: median {median:.1%}, {min(overheads):.1%} to {max(overheads):.1%}, {rounds} rounds")
    print(json.dumps({"ray_overhead": round(median, 4), "rounds": [round(each, 4) for each in overheads]}))


def _words(rates: Sequence[float]) -> str:
    return f"{statistics.median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="*", metavar="NAME=VALUE")
    parser.add_argument("--root", help="an image folder; without it generated pictures are used")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--probes", type=int, default=3)
    options = parser.parse_args()
    settings: dict[str, object] = {
        name: parsed(value) for name, _, value in (setting.partition("=") for setting in options.settings)
    }
    data = {"name": "folder", "root": f"{Path(options.root).resolve()}"} if options.root else {"name": "generated"}
    compare(settings, options.rounds, options.probes, data)


if __name__ == "__main__":
    main()
