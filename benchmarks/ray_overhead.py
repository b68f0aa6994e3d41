"""Overhead of Ray: the rate of probes in a search beside the rate of the same probes without Ray.

    python benchmarks/ray_overhead.py --root PICTURES [--rounds 5] [--probes 3] [batch_size=128 precision=bf16 ...]

Each round runs one search (`search.run`, with the dashboard, as users run it) with one trial for each probe, and the
same number of probes by `trainables.train --probe` while no Ray runs on the machine. The order alternates between
rounds. A rate is the median of a round's probes. The overhead is the fraction by which the rate in the search is lower;
the median over the rounds is reported. The last line is one JSON object.
"""

from __future__ import annotations

import csv
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from command_line import conditions, parse_settings, parser_of, run_training

from trainables.contract import Data

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


def rates_in_search(settings: dict[str, object], probes: int, data: Data, folder: Path) -> list[float]:
    """Return the images per second of each trial of a search."""
    space, places = folder / "probes.yaml", {"name": data.name} | ({"root": data.root} if data.root else {})
    space.write_text(SPACE.format(seeds=list(range(probes)), fixed=json.dumps(settings), data=json.dumps(places)))
    command = [sys.executable, "-m", "search.run", str(space), "--results", str(folder), "--name", "run"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with (folder / "run" / "trials.csv").open(newline="") as file:
        return [float(row["images_per_second"]) for row in csv.DictReader(file)]


def rates_alone(settings: dict[str, object], probes: int, data: Data, folder: Path) -> list[float]:
    """Return the images per second of probes without Ray, each in its own process."""
    return [
        run_training({**settings, "seed": seed}, data, folder / f"{seed}", probe=True)["images_per_second"]
        for seed in range(probes)
    ]


def main() -> None:
    """Measure both in turn; print a table and the overhead."""
    parser = parser_of(__doc__)
    parser.add_argument("settings", nargs="*", metavar="NAME=VALUE")
    parser.add_argument("--root", help="image folder; generated images without it")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--probes", type=int, default=3)
    options = parser.parse_args()
    settings = parse_settings(options.settings)
    data = Data("folder", f"{Path(options.root).resolve()}") if options.root else Data("generated")
    print(f"{conditions()}; {settings or 'the defaults'}; {data.name}")
    print("| round | in a search, images/s | alone, images/s | overhead |")
    print("| --- | --- | --- | --- |")
    overheads = []
    for number in range(options.rounds):
        rates = {}
        for measure in (rates_in_search, rates_alone) if number % 2 == 0 else (rates_alone, rates_in_search):
            with tempfile.TemporaryDirectory() as folder:
                rates[measure] = measure(settings, options.probes, data, Path(folder))
        searched, alone = rates[rates_in_search], rates[rates_alone]
        overheads.append(1 - statistics.median(searched) / statistics.median(alone))
        print(f"| {number + 1} | {_range(searched)} | {_range(alone)} | {overheads[-1]:.1%} |", flush=True)
    median = statistics.median(overheads)
    print(f"overhead: median {median:.1%}, {min(overheads):.1%} to {max(overheads):.1%}, {options.rounds} rounds")
    print(json.dumps({"ray_overhead": round(median, 4), "rounds": [round(each, 4) for each in overheads]}))


def _range(rates: Sequence[float]) -> str:
    return f"{statistics.median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"


if __name__ == "__main__":
    main()
