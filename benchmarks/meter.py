"""Coverage and A/A errors of the meter's intervals on this machine, quiet and under load.

    python benchmarks/meter.py [--stream quiet] [--tries 100] [--probe-seconds 8] [--width 0.25] [--keep probes]
    python benchmarks/meter.py --judge probes-quiet-1.json probes-quiet-2.json     (measures nothing)

A long stream of real training steps is divided into consecutive probes. Each has its own meter and stops like a probe
of a search; the seconds that a real probe spends on profiling are subtracted from its time. The reference of a probe is
the pooled rate of its ten successors, which is about ten times as long. Coverage is the fraction of probes whose 95%
interval contains the reference. An A/A error is a pair of probes that differ at the 5% level although nothing was
changed, among adjacent probes and among probes half a stream apart. The load is a child process that occupies one core
for about 1 s, then pauses for about 3 s. --keep stores the windows, so that another rule can be judged on the same
measurement. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from command_line import conditions, parser_of, settings_of

from trainables.build import build
from trainables.machine.affinity import claimed_cores
from trainables.machine.allocator import allocating
from trainables.machine.devices import synchronize
from trainables.measure.core_speed import CoreSpeed
from trainables.measure.drift import MAX_RECORDS, RateRecord, drift_of
from trainables.measure.instruments import PROFILED_SECONDS
from trainables.measure.interference import InterferenceClock
from trainables.measure.probe_end import MAX_PROBE_SECONDS, PROBE_SECONDS
from trainables.measure.reference_step import ReferenceStep
from trainables.measure.repeats import rates_by_part, reference_rate
from trainables.measure.throughput import MIN_WINDOWS, Throughput, ThroughputMeter, Window, differ, throughput
from trainables.plan import Plan
from trainables.samples.loaders import training_batches
from trainables.samples.picture_source import Pictures
from trainables.stages import Timeline
from trainables.vgg19_settings import Vgg19Settings
from trainables.workloads import vgg19

SUCCESSORS = 10
NUM_PICTURES = 5000
ON_SECONDS, OFF_SECONDS = 1.0, 3.0  # means of exponential distributions

# Names of fields in files of earlier versions.
RENAMED = {"foreign_seconds": "interference_seconds", "pace": "slowdown", "yardstick": "reference_seconds"}


@dataclass(frozen=True)
class Try:
    """Windows of one measured probe."""

    windows: list[Window]
    cores: int
    warmup_steps: int
    seconds: float  # includes the warm-up and discarded windows


def stream(settings: Vgg19Settings, device: torch.device) -> Iterator[int]:
    """Train endlessly; yield the number of images of each step."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (NUM_PICTURES, 32, 32, 3), np.uint8)
    pictures = Pictures(images, rng.integers(0, 10, NUM_PICTURES))
    plan = Plan(np.arange(NUM_PICTURES), settings.batch_size, settings.seed)
    batches = training_batches("memory", pictures, plan, device, num_workers=0, pin_memory=False)
    step, timeline = build(settings, vgg19.shape_for(pictures.num_classes), device), Timeline(device)
    for epoch in itertools.count(1):
        for batch in batches.epoch(epoch, timeline):
            step(*batch, timeline)
            yield settings.batch_size


def probe(
    steps: Iterator[int],
    cores: frozenset[int],
    senses: tuple[Callable[[], float], Callable[[], float] | None],
    device: torch.device,
    most_seconds: float,
) -> Try:
    """Measure the stream until the rate settles or the time is over. `senses`: slowdown and reference step."""
    meter = ThroughputMeter(
        max_warmup_steps=20,
        synchronize=lambda: synchronize(device),
        interference=InterferenceClock(cores, device),
        slowdown=senses[0],
        reference_step=senses[1],
        cores=len(cores),
    )
    started = time.perf_counter()
    meter.resume()
    while not _enough(meter, time.perf_counter() - started, most_seconds):
        windows = len(meter.windows)
        while len(meter.windows) == windows:
            meter.step(next(steps))
    return Try(list(meter.windows), len(cores), meter.result().warmup_steps, time.perf_counter() - started)


def _enough(meter: ThroughputMeter, seconds: float, most_seconds: float) -> bool:
    """Return whether `loop.probe` would stop here."""
    late = seconds >= most_seconds and len(meter.uncontended_windows) >= MIN_WINDOWS
    over = seconds >= most_seconds + MAX_PROBE_SECONDS - PROBE_SECONDS and len(meter.windows) > 0
    return late or over or meter.settled()


def burn(seed: int) -> None:
    """Occupy a core intermittently until killed."""
    rng = random.Random(seed)
    while True:
        end = time.monotonic() + rng.expovariate(1 / ON_SECONDS)
        while time.monotonic() < end:
            pass
        time.sleep(rng.expovariate(1 / OFF_SECONDS))


@contextlib.contextmanager
def load() -> Iterator[None]:
    """Run a competing process; the time of a `multiprocessing` child would count as the trial's own."""
    child = subprocess.Popen([sys.executable, __file__, "--burn"])
    try:
        yield
    finally:
        child.kill()
        child.wait()


def pooled(successors: list[Throughput]) -> float:
    """Images per second of several probes together: of those that were not contended, if there are any."""
    counted = [t for t in successors if not t.contended] or successors
    return sum(t.units for t in counted) / sum(t.seconds for t in counted)


def known(tries: list[Try], before: list[RateRecord], *, repeats: bool = False) -> list[Throughput]:
    """The probes with the drift that each of them could know of; what it showed is added to `before`.

    Without `repeats` that is the reference step alone, as in a search in which no trial is like another.
    """
    found = []
    for one in tries:
        found.append(throughput(one.windows, one.cores, drift_of(before[-MAX_RECORDS:])))
        rates = {"reference_step": reference_rate(one.windows, one.cores)}
        rates |= {"stream": rates_by_part(one.windows, one.cores)} if repeats else {}
        before += [(work, 0.0, math.log(rate)) for work, some in rates.items() for rate in some]
    return found


@dataclass(frozen=True)
class Judged:
    """Probe with its reference in images per second."""

    throughput: Throughput
    reference: float

    @property
    def covered(self) -> bool:
        """True if the interval contains the reference."""
        return (self.throughput.low or math.inf) <= self.reference <= (self.throughput.high or -math.inf)

    @property
    def off(self) -> float:
        """Relative error against the reference."""
        return self.throughput.units_per_second / self.reference - 1


def judge(name: str, parts: list[list[Try]], before: list[RateRecord], *, repeats: bool = False) -> dict[str, float]:
    """Print and return the figures of all streams of one kind; each stream is judged separately."""
    streams = [known(tries, before, repeats=repeats) for tries in parts]
    judged = [
        Judged(found[i], pooled(found[i + 1 : i + 1 + SUCCESSORS]))
        for found in streams
        for i in range(len(found) - SUCCESSORS)
    ]
    everything = [t for found in streams for t in found]
    uncontended = [x.covered for x in judged if not x.throughput.contended]
    widths = sorted((x.throughput.high or math.inf) / x.throughput.units_per_second - 1 for x in judged)
    sampling = statistics.fmean((x.throughput.sampling_error or 0.0) ** 2 for x in judged) * (1 + 1 / SUCCESSORS)
    near = [pair for found in streams for pair in itertools.pairwise(found)]
    far = [pair for found in streams for pair in zip(found, found[len(found) // 2 :], strict=False)]
    figures = {
        "tries": len(judged),
        "coverage": statistics.fmean(x.covered for x in judged),
        "coverage_uncontended": statistics.fmean(uncontended) if uncontended else math.nan,
        "aa_error": statistics.fmean(differ(a, b) for a, b in near),
        "aa_error_far": statistics.fmean(differ(a, b) for a, b in far),
        "half_width": statistics.median(widths),
        "half_width_90": widths[len(widths) * 9 // 10],
        # error against the reference, and the part that the windows do not explain
        "off": math.sqrt(statistics.fmean(x.off**2 for x in judged)),
        "off_unexplained": math.sqrt(max(0.0, statistics.fmean(x.off**2 for x in judged) - sampling)),
        "drift": drift_of(before[-MAX_RECORDS:]).deviation,  # at the end
        "windows": statistics.fmean(t.windows for t in everything),
        "windows_left_out": statistics.fmean(t.contended_windows for t in everything),
        "contended_probes": statistics.fmean(t.contended for t in everything),
        "warmup_steps": statistics.fmean(x.warmup_steps for tries in parts for x in tries),
        "probe_seconds": statistics.fmean(x.seconds for tries in parts for x in tries),
        "longest_probe_seconds": max(x.seconds for tries in parts for x in tries),
        "images_per_second": statistics.median(t.units_per_second for t in everything),
    }
    print(f"| {name} | " + " | ".join(f"{value:.3g}" for value in figures.values()) + " |", flush=True)
    return {f"{key}_{name}": float(f"{value:.4g}") for key, value in figures.items() if math.isfinite(value)}


def header() -> None:
    """Print the header of the table."""
    names = "stream tries coverage of_quiet aa aa_far half_width hw_90 off unexplained drift"
    names += " windows left_out contended warmup s max_s rate"
    print("| " + names.replace(" ", " | ") + " |\n|" + " --- |" * len(names.split()))


def measure(options: argparse.Namespace) -> None:
    """Measure the streams on claimed cores."""
    config = {"width": options.width, "batch_size": options.batch_size, "seed": 0}
    settings = settings_of(config)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    results: dict[str, float] = {}
    before: list[RateRecord] = []
    with claimed_cores(len(os.sched_getaffinity(0))) as cores, allocating(settings.allocator):
        torch.set_num_threads(len(cores))
        print(f"{conditions()}; {config}; {time.strftime('%Y-%m-%d')}")
        header()
        steps = stream(settings, device)
        senses = (CoreSpeed(), ReferenceStep()) if device.type == "cpu" else (lambda: 1.0, None)
        for name in ("quiet", "loaded") if options.stream == "both" else (options.stream,):
            with load() if name == "loaded" else contextlib.nullcontext():
                count, most_seconds = options.tries + SUCCESSORS, options.probe_seconds - PROFILED_SECONDS
                tries = [probe(steps, cores, senses, device, most_seconds) for _ in range(count)]
            if options.keep:
                Path(f"{options.keep}-{name}.json").write_text(json.dumps([asdict(one) for one in tries]))
            results |= judge(name, [tries], before, repeats=options.repeats)
    print(json.dumps(results))


def judge_again(files: list[str], taught_by: list[str], *, repeats: bool) -> None:
    """Judge stored streams by kind; the files `taught_by` give the drift, in order."""
    before: list[RateRecord] = []
    for file in taught_by:
        known(_read(file), before, repeats=repeats)
    header()
    results: dict[str, float] = {}
    for name in ("quiet", "loaded"):
        if parts := [_read(file) for file in files if f"-{name}" in Path(file).name]:
            results |= judge(name, parts, before, repeats=repeats)
    print(json.dumps(results))


def _read(file: str) -> list[Try]:
    tries = json.loads(Path(file).read_text())
    for window in itertools.chain.from_iterable(one["windows"] for one in tries):
        for old, name in RENAMED.items():
            if old in window:
                window[name] = window.pop(old)
    return [Try(**{**one, "windows": [Window(**window) for window in one["windows"]]}) for one in tries]


def main() -> None:
    """Measure, or judge stored windows."""
    parser = parser_of(__doc__)
    parser.add_argument("--tries", type=int, default=100)
    parser.add_argument("--stream", choices=("quiet", "loaded", "both"), default="both")
    parser.add_argument("--probe-seconds", type=float, default=PROBE_SECONDS, help="usual duration with profiling")
    parser.add_argument("--width", type=float, default=0.25)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--keep", help="store the windows in KEEP-quiet.json and KEEP-loaded.json")
    parser.add_argument("--judge", nargs="+", default=[], metavar="FILE", help="judge stored windows, measure nothing")
    parser.add_argument("--taught-by", nargs="+", default=[], metavar="FILE", help="windows that give the drift")
    parser.add_argument("--repeats", action="store_true", help="estimate the drift from the rates of the probes too")
    parser.add_argument("--burn", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.burn:
        burn(seed=0)
    elif options.judge:
        judge_again(options.judge, options.taught_by, repeats=options.repeats)
    else:
        measure(options)


if __name__ == "__main__":
    main()
