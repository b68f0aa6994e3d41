"""Whether the meter's intervals keep their word: coverage and A/A errors on this machine, quiet and under load.

    python benchmarks/meter.py [--stream quiet] [--tries 100] [--probe-seconds 8] [--width 0.25] [--keep probes]
    python benchmarks/meter.py --judge probes-quiet-1.json probes-quiet-2.json     measures nothing

One long stream of real training steps is cut into consecutive probes, each with a meter of its own that stops as a
probe of a search does; the seconds that such a one profiles are taken off its time. The reference of a probe is what
its ten successors measured together: about ten times as long. Coverage is the share of probes whose 95% interval holds
their reference; an A/A error is a pair of probes that differ at 5% though nothing was changed, of neighbours and of
probes half a stream apart. The load is a child that burns one core, on for about 1 s and off for about 3 s at a time.
What is kept are the windows, so that another rule can be judged by the same measurement. The last line is one JSON
object.
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

from trainables import vgg19_cifar10
from trainables.build import build
from trainables.loop import MOST_PROBE_SECONDS, PROBE_SECONDS
from trainables.machine.affinity import claimed_cores
from trainables.machine.allocator import allocating
from trainables.measure.drift import MOST_LEVELS as MOST_KEPT
from trainables.measure.drift import Level, drift_of
from trainables.measure.instruments import PROFILED_SECONDS
from trainables.measure.neighbours import ForeignLoad
from trainables.measure.pace import Pace
from trainables.measure.repeats import levels, yardstick_level
from trainables.measure.throughput import MIN_WINDOWS, Throughput, ThroughputMeter, Window, differ, throughput
from trainables.measure.yardstick import Yardstick
from trainables.pictures.cifar10 import Pictures
from trainables.pictures.loaders import Plan, training_batches
from trainables.settings import Settings, checked
from trainables.stages import Timeline

SUCCESSORS = 10
NUM_PICTURES = 5000
ON_SECONDS, OFF_SECONDS = 1.0, 3.0  # means of exponential distributions


@dataclass(frozen=True)
class Try:
    """A probe as it was measured."""

    windows: list[Window]
    cores: int
    warmup_steps: int
    seconds: float  # warm-up and windows left out among them


def stream(settings: Settings, device: torch.device) -> Iterator[int]:
    """Train without end; the images of each step."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (NUM_PICTURES, 32, 32, 3), np.uint8)
    pictures = Pictures(images, rng.integers(0, 10, NUM_PICTURES))
    plan = Plan(np.arange(NUM_PICTURES), settings.batch_size, settings.seed)
    batches = training_batches("memory", pictures, plan, device, num_workers=0, pin_memory=False)
    step, timeline = build(settings, pictures.num_classes, device), Timeline(device)
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
    """Measure the stream until that has settled, or for so long. `senses`: pace and yardstick."""
    meter = ThroughputMeter(
        max_warmup_steps=20,
        synchronize=(lambda: torch.cuda.synchronize(device)) if device.type == "cuda" else lambda: None,
        foreign=ForeignLoad(cores, device),
        pace=senses[0],
        yardstick=senses[1],
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
    """As `loop.probe` ends."""
    late = seconds >= most_seconds and len(meter.quiet_windows) >= MIN_WINDOWS
    over = seconds >= most_seconds + MOST_PROBE_SECONDS - PROBE_SECONDS and len(meter.windows) > 0
    return late or over or meter.settled()


def burn(seed: int) -> None:
    """Take a core on and off, until killed."""
    rng = random.Random(seed)
    while True:
        end = time.monotonic() + rng.expovariate(1 / ON_SECONDS)
        while time.monotonic() < end:
            pass
        time.sleep(rng.expovariate(1 / OFF_SECONDS))


@contextlib.contextmanager
def load() -> Iterator[None]:
    """A neighbour; no `multiprocessing` child, whose time would be taken for the trial's own."""
    child = subprocess.Popen([sys.executable, __file__, "--burn"])
    try:
        yield
    finally:
        child.kill()
        child.wait()


def pooled(successors: list[Throughput]) -> float:
    """Images per second of several probes together: of those that were not disturbed, if there are any."""
    counted = [t for t in successors if not t.disturbed] or successors
    return sum(t.images for t in counted) / sum(t.seconds for t in counted)


def known(tries: list[Try], before: list[Level], *, repeats: bool = False) -> list[Throughput]:
    """The probes with the drift that each of them could know of; what it showed is added to `before`.

    Without `repeats` that is the yardstick alone, as in a search in which no trial is like another.
    """
    found = []
    for one in tries:
        found.append(throughput(one.windows, one.cores, drift_of(before[-MOST_KEPT:])))
        rates = {"yardstick": yardstick_level(one.windows, one.cores)}
        rates |= {"stream": levels(one.windows, one.cores)} if repeats else {}
        before += [(work, 0.0, math.log(rate)) for work, some in rates.items() for rate in some]
    return found


@dataclass(frozen=True)
class Judged:
    """A probe, and its reference in images per second."""

    throughput: Throughput
    reference: float

    @property
    def covered(self) -> bool:
        """Whether the interval holds the reference."""
        return (self.throughput.low or math.inf) <= self.reference <= (self.throughput.high or -math.inf)

    @property
    def off(self) -> float:
        """Relative."""
        return self.throughput.images_per_second / self.reference - 1


def judge(name: str, parts: list[list[Try]], before: list[Level], *, repeats: bool = False) -> dict[str, float]:
    """Print and return the figures of the streams of one kind, each of which is judged by itself."""
    streams = [known(tries, before, repeats=repeats) for tries in parts]
    judged = [
        Judged(found[i], pooled(found[i + 1 : i + 1 + SUCCESSORS]))
        for found in streams
        for i in range(len(found) - SUCCESSORS)
    ]
    everything = [t for found in streams for t in found]
    undisturbed = [x.covered for x in judged if not x.throughput.disturbed]
    widths = sorted((x.throughput.high or math.inf) / x.throughput.images_per_second - 1 for x in judged)
    sampling = statistics.fmean((x.throughput.sampling_error or 0.0) ** 2 for x in judged) * (1 + 1 / SUCCESSORS)
    near = [pair for found in streams for pair in itertools.pairwise(found)]
    far = [pair for found in streams for pair in zip(found, found[len(found) // 2 :], strict=False)]
    figures = {
        "tries": len(judged),
        "coverage": statistics.fmean(x.covered for x in judged),
        "coverage_undisturbed": statistics.fmean(undisturbed) if undisturbed else math.nan,
        "aa_error": statistics.fmean(differ(a, b) for a, b in near),
        "aa_error_far": statistics.fmean(differ(a, b) for a, b in far),
        "half_width": statistics.median(widths),
        "half_width_90": widths[len(widths) * 9 // 10],
        # what the probes are off their references, and beyond what their own windows explain
        "off": math.sqrt(statistics.fmean(x.off**2 for x in judged)),
        "off_unexplained": math.sqrt(max(0.0, statistics.fmean(x.off**2 for x in judged) - sampling)),
        "drift": drift_of(before[-MOST_KEPT:]).deviation,  # as known at the end
        "windows": statistics.fmean(t.windows for t in everything),
        "windows_left_out": statistics.fmean(t.disturbed_windows for t in everything),
        "disturbed_probes": statistics.fmean(t.disturbed for t in everything),
        "warmup_steps": statistics.fmean(x.warmup_steps for tries in parts for x in tries),
        "probe_seconds": statistics.fmean(x.seconds for tries in parts for x in tries),
        "longest_probe_seconds": max(x.seconds for tries in parts for x in tries),
        "images_per_second": statistics.median(t.images_per_second for t in everything),
    }
    print(f"| {name} | " + " | ".join(f"{value:.3g}" for value in figures.values()) + " |", flush=True)
    return {f"{key}_{name}": float(f"{value:.4g}") for key, value in figures.items() if math.isfinite(value)}


def header() -> None:
    """Of the table."""
    names = "stream tries coverage of_quiet aa aa_far half_width hw_90 off unexplained drift"
    names += " windows left_out disturbed warmup s max_s rate"
    print("| " + names.replace(" ", " | ") + " |\n|" + " --- |" * len(names.split()))


def measure(options: argparse.Namespace) -> None:
    """The streams, on cores of their own."""
    config = {"width": options.width, "batch_size": options.batch_size, "seed": 0}
    settings = Settings(**checked(config, vgg19_cifar10.PARAMETERS or {}))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    results: dict[str, float] = {}
    before: list[Level] = []
    with claimed_cores(len(os.sched_getaffinity(0))) as cores, allocating(settings.allocator):
        torch.set_num_threads(len(cores))
        print(f"{len(cores)} cores; {config}; load {os.getloadavg()[0]:.1f}; {time.strftime('%Y-%m-%d')}")
        header()
        steps = stream(settings, device)
        senses = (Pace(), Yardstick()) if device.type == "cpu" else (lambda: 1.0, None)
        for name in ("quiet", "loaded") if options.stream == "both" else (options.stream,):
            with load() if name == "loaded" else contextlib.nullcontext():
                count, most_seconds = options.tries + SUCCESSORS, options.probe_seconds - PROFILED_SECONDS
                tries = [probe(steps, cores, senses, device, most_seconds) for _ in range(count)]
            if options.keep:
                Path(f"{options.keep}-{name}.json").write_text(json.dumps([asdict(one) for one in tries]))
            results |= judge(name, [tries], before, repeats=options.repeats)
    print(json.dumps(results))


def judge_again(files: list[str], taught_by: list[str], *, repeats: bool) -> None:
    """Streams that were kept, those of a name as one kind; the drift is known from the files `taught_by`, in order."""
    before: list[Level] = []
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
    return [Try(**{**one, "windows": [Window(**window) for window in one["windows"]]}) for one in tries]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=100)
    parser.add_argument("--stream", choices=("quiet", "loaded", "both"), default="both")
    parser.add_argument("--probe-seconds", type=float, default=PROBE_SECONDS, help="as a rule, profiling among them")
    parser.add_argument("--width", type=float, default=0.25)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--keep", help="write the windows of each probe to KEEP-quiet.json and KEEP-loaded.json")
    parser.add_argument("--judge", nargs="+", default=[], metavar="FILE", help="kept ones; measure nothing")
    parser.add_argument("--taught-by", nargs="+", default=[], metavar="FILE", help="what is known before --judge")
    parser.add_argument("--repeats", action="store_true", help="the drift is known from the probes' own rates too")
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
