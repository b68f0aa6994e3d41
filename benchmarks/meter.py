"""Whether the meter's intervals keep their word: coverage and A/A errors on this machine, quiet and under load.

    python benchmarks/meter.py [--tries 100] [--probe-seconds 8] [--width 0.25] [--batch-size 64]

One long stream of real training steps is cut into consecutive probes, each with a meter of its own that stops when it
has settled or its time is up. The reference of a probe is what its ten successors measured together: about ten times as
long. Coverage is the share of probes whose 95% interval holds their reference; an A/A error is a pair of probes that
differ at 5% though nothing was changed, of neighbours and of probes half a stream apart. The load is a child that burns
one core, on for about 1 s and off for about 3 s at a time. The last line is one JSON object.
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
from dataclasses import dataclass

import numpy as np
import torch

from trainables import vgg19_cifar10
from trainables.affinity import claimed_cores
from trainables.allocator import allocating
from trainables.build import build
from trainables.cifar10 import Pictures
from trainables.loaders import Plan, training_batches
from trainables.neighbours import ForeignLoad
from trainables.pace import Pace
from trainables.settings import Settings, checked
from trainables.stages import Timeline
from trainables.throughput import Throughput, ThroughputMeter, differ

SUCCESSORS = 10
NUM_PICTURES = 5000
ON_SECONDS, OFF_SECONDS = 1.0, 3.0  # means of exponential distributions


@dataclass(frozen=True)
class Try:
    """A probe and what it took."""

    throughput: Throughput
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
    steps: Iterator[int], cores: frozenset[int], pace: Callable[[], float], device: torch.device, most_seconds: float
) -> Try:
    """Measure the stream until that has settled, or for so long."""
    meter = ThroughputMeter(
        max_warmup_steps=20,
        synchronize=(lambda: torch.cuda.synchronize(device)) if device.type == "cuda" else lambda: None,
        foreign=ForeignLoad(cores, device),
        pace=pace,
        cores=len(cores),
    )
    started = time.perf_counter()
    meter.resume()
    while not (meter.windows and (meter.settled() or time.perf_counter() - started > most_seconds)):
        windows = meter.windows
        while meter.windows == windows:
            meter.step(next(steps))
    return Try(meter.result(), time.perf_counter() - started)


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


def judge(name: str, tries: list[Try]) -> dict[str, float]:
    """Print and return the figures of one stream."""
    found = [x.throughput for x in tries]
    references = [pooled(found[i + 1 : i + 1 + SUCCESSORS]) for i in range(len(found) - SUCCESSORS)]
    judged = found[: len(references)]
    quiet = [not t.disturbed for t in judged]
    covered = [(t.low or math.inf) <= r <= (t.high or -math.inf) for t, r in zip(judged, references, strict=True)]
    off = [t.images_per_second / r - 1 for t, r in zip(judged, references, strict=True)]
    sampling = statistics.fmean((t.sampling_error or 0.0) ** 2 for t in judged) * (1 + 1 / SUCCESSORS)
    half = len(found) // 2
    pairs = {"": list(itertools.pairwise(found)), "_far": list(zip(found, found[half:], strict=False))}
    figures = {
        "coverage": statistics.fmean(covered),
        "coverage_undisturbed": statistics.fmean(c for c, q in zip(covered, quiet, strict=True) if q)
        if any(quiet)
        else math.nan,
        **{f"aa_error{which}": statistics.fmean(differ(a, b) for a, b in some) for which, some in pairs.items()},
        "half_width": statistics.median((t.high or math.inf) / t.images_per_second - 1 for t in judged),
        # what the probes are off their references beyond what their own windows explain
        "drift": math.sqrt(max(0.0, statistics.fmean(x * x for x in off) - sampling)),
        "windows": statistics.fmean(t.windows for t in found),
        "windows_left_out": statistics.fmean(t.disturbed_windows for t in found),
        "disturbed_probes": statistics.fmean(t.disturbed for t in found),
        "warmup_steps": statistics.fmean(t.warmup_steps for t in found),
        "probe_seconds": statistics.fmean(x.seconds for x in tries),
        "longest_probe_seconds": max(x.seconds for x in tries),
        "images_per_second": statistics.median(t.images_per_second for t in found),
    }
    print(f"| {name} | {len(judged)} | " + " | ".join(f"{value:.3g}" for value in figures.values()) + " |", flush=True)
    return {f"{key}_{name}": float(f"{value:.4g}") for key, value in figures.items() if math.isfinite(value)}


def measure(options: argparse.Namespace) -> None:
    """Both streams, on cores of their own."""
    config = {"width": options.width, "batch_size": options.batch_size, "seed": 0}
    settings = Settings(**checked(config, vgg19_cifar10.PARAMETERS or {}))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    results: dict[str, float] = {"tries": options.tries}
    with claimed_cores(len(os.sched_getaffinity(0))) as cores, allocating(settings.allocator):
        torch.set_num_threads(len(cores))
        print(f"{len(cores)} cores; {config}; load {os.getloadavg()[0]:.1f}; {time.strftime('%Y-%m-%d')}")
        steps = stream(settings, device)
        pace: Callable[[], float] = Pace() if device.type == "cpu" else lambda: 1.0
        for name, neighbour in (("quiet", contextlib.nullcontext()), ("loaded", load())):
            with neighbour:
                count = options.tries + SUCCESSORS
                tries = [probe(steps, cores, pace, device, options.probe_seconds) for _ in range(count)]
            if name == "quiet":
                header = "stream tries coverage of_quiet aa aa_far half_width drift"
                header += " windows left_out disturbed warmup s max_s rate"
                print("| " + header.replace(" ", " | ") + " |\n|" + " --- |" * len(header.split()))
            results |= judge(name, tries)
            if options.keep:
                with open(f"{options.keep}-{name}.json", "w") as file:
                    json.dump([{**vars(x.throughput), "took": x.seconds} for x in tries], file)
    print(json.dumps(results))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=100)
    parser.add_argument("--probe-seconds", type=float, default=8.0, help="at most")
    parser.add_argument("--width", type=float, default=0.25)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--keep", help="write each probe to KEEP-quiet.json and KEEP-loaded.json")
    parser.add_argument("--burn", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.burn:
        burn(seed=0)
    else:
        measure(options)


if __name__ == "__main__":
    main()
