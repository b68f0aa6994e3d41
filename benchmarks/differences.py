"""Ratios of rates from turns: false differences, coverage of known ones, and the length of their intervals.

    python benchmarks/differences.py [--tries 100] [--seconds 20] [--slower-by 0 0.1] [--load] [batch_size=128 ...]

In an A/A try two equal configurations are built anew and have turns for `--seconds`; the 95% interval of their ratio
should hold 1 in at least 95 of 100 tries. In the others the loader of the second one spins for 3, 10 or 30% of a step's
time before each step. These have turns for eleven tries one after the other, and the interval of each should hold the
ratio of the other ten together. In as long a time as one of the first ten tries takes, two probes of half its length
are made one after the other, as a search without turns does; the last column is the length of the interval of the turns
over that of the probes' ratio. With --load another process spins on one core for 1 s of 4. The last line is one JSON
object.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

from command_line import DEVICE, RESOURCES, conditions, parse_settings, parser_of
from meter import load

from search.front.differences import FEWEST_ROUNDS, Estimate, log_ratio
from search.front.intervals import HALF_95, half_interval
from trainables import turns
from trainables.contract import Data, Measurement
from trainables.local_worker import LocalWorker
from trainables.measure import probe_end
from trainables.plan import Batch
from trainables.vgg19_cifar10 import trainable

SLOWER_BY = (0.0, 0.03, 0.1, 0.3)
SUCCESSIVE_TRIES = 11  # of two configurations with a known difference; ten of them are the reference of each
PROBED_TRIES = 10
USUAL = {"batch_size": 128, "width": 0.25}
DATA = Data(name="generated", train_images=5000, val_images=500)


def main() -> None:
    """Make the tries and print a line for each difference."""
    options = _options()
    config = USUAL | parse_settings(options.settings)
    print(f"VGG19 {config} on {DEVICE}; {conditions()}; {'beside a load' if options.load else 'no load of its own'}")
    print("slower by   tries   interval holds   called different   half interval   of that of two probes")
    found: dict[str, Any] = {}
    with load() if options.load else contextlib.nullcontext():
        for share in options.slower_by:
            found[f"{share:g}"] = _measured(config, share, options)
    print(json.dumps({"differences": found, "seconds": options.seconds, "load": options.load}))


def _options() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("settings", nargs="*", metavar="NAME=VALUE")
    parser.add_argument("--tries", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--slower-by", type=float, nargs="+", default=SLOWER_BY)
    parser.add_argument("--load", action="store_true")
    return parser.parse_args()


def _measured(config: dict[str, Any], share: float, options: argparse.Namespace) -> dict[str, float]:
    """Make the tries of one difference; return and print how often the interval holds, and how long it is."""
    tries: list[tuple[Estimate, float]] = []
    while len(tries) < options.tries:
        tries += _tries(config, share, options.seconds)
    halves = [HALF_95 * estimate.deviation for estimate, _ in tries]
    of_probes = [half / _half_of_probes(config, options.seconds / 2) for half in halves[:PROBED_TRIES]]
    figures = {
        "tries": float(len(tries)),
        "holds": statistics.mean(estimate.low <= truth <= estimate.high for estimate, truth in tries),
        "different": statistics.mean(estimate.low > 0 or estimate.high < 0 for estimate, _ in tries),
        "half_interval": statistics.median(halves),
        "of_two_probes": statistics.median(of_probes),
    }
    print(
        f"{share:9.0%}   {len(tries):5d}   {figures['holds']:14.0%}   {figures['different']:16.0%}   "
        f"{figures['half_interval']:13.2%}   {figures['of_two_probes']:21.2f}",
        flush=True,
    )
    return figures


def _tries(config: dict[str, Any], share: float, seconds: float) -> Iterator[tuple[Estimate, float]]:
    """Build two configurations and yield, for each try, the logarithm of their ratio and its reference."""
    number = SUCCESSIVE_TRIES if share else 1
    tries: list[list[tuple[float, float]]] = [[]]
    end = math.inf

    def goes_on(measurement: Measurement) -> bool:
        nonlocal end
        tries[-1].append((measurement.metrics["rate_0"], measurement.metrics["rate_1"]))
        if len(tries[-1]) == 1:
            end = time.perf_counter() + seconds
        if time.perf_counter() >= end and len(tries[-1]) >= FEWEST_ROUNDS:
            tries.append([])
        return len(tries) <= number

    with TemporaryDirectory() as folder, _second_slowed(share):
        worker = LocalWorker(Path(folder), 1, DATA, RESOURCES, listener=goes_on)
        trainable.turns([config, config], worker)
    for place, rounds in enumerate(tries[:number]):
        estimate = log_ratio(rounds)
        others = log_ratio(list(itertools.chain(*tries[:place], *tries[place + 1 :]))) if share else None
        assert estimate is not None
        yield estimate, others.mean if others else 0.0


@contextlib.contextmanager
def _second_slowed(share: float) -> Iterator[None]:
    """Make every second runner spin before each step for a share of the step's time."""
    number, warm_up = itertools.count(), turns._Runner.warm_up

    def slowed(runner: turns._Runner) -> None:
        warm_up(runner)
        if next(number) % 2 and share:
            runner._batches = _delayed(runner._batches, share * turns.TURN_SECONDS / runner._steps)

    with mock.patch.object(turns._Runner, "warm_up", slowed):
        yield


def _delayed(batches: Iterator[Batch], seconds: float) -> Iterator[Batch]:
    for batch in batches:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass
        yield batch


def _half_of_probes(config: dict[str, Any], seconds: float) -> float:
    """Return half of the 95% interval of the logarithm of the ratio of two probes of so many seconds."""
    halves = []
    for _ in range(2):
        with (
            TemporaryDirectory() as folder,
            mock.patch.multiple(probe_end, PROBE_SECONDS=seconds, MAX_PROBE_SECONDS=seconds + 1),
        ):
            worker = LocalWorker(Path(folder), 1, DATA, RESOURCES)
            trainable.probe(config, worker)
        metrics = worker.reported[-1].metrics
        halves.append((half_interval(metrics, "images_per_second") or math.inf) / metrics["images_per_second"])
    return math.hypot(*halves)


if __name__ == "__main__":
    main()
