"""What each parallel strategy costs: its rate beside that of `single`, and our loop beside a bare one by hand.

    python benchmarks/strategies.py [--rounds 5] [--loops] [--root PICTURES] [batch_size=128 width=0.25 ...]

In each round every strategy that this machine can run is probed once (`trainables.train --probe`), in another order,
all of them at the same global batch on the same cores or GPUs; `single` has all of the cores, or one GPU. A ratio is a
round's rate over that of `single`; medians over the rounds. Then, in two processes that stay up, probes of strategy
`ddp` alternate with the same training as a loop of DistributedDataParallel of twenty lines. The last line is one JSON
object.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import multiprocessing
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from trainables import vgg19_cifar10
from trainables.build import device_of, network
from trainables.contract import Config, Data, InfeasibleError, Layout, Resources
from trainables.machine.affinity import claimed_cores
from trainables.machine.isolation import isolated
from trainables.parallel.layouts import FEWEST_PROCESSES
from trainables.pictures import cifar10
from trainables.pictures.loaders import Plan, Share, augmented, normalization
from trainables.settings import Settings, checked, parsed
from trainables.step import arranged, autocast
from trainables.train import LocalWorker, machine

BARE_WARMUP_STEPS, BARE_SECONDS = 6, 6.0
# Beside the strategy itself: its own settings, in the order in which people would try them.
VARIANTS: Sequence[Mapping[str, Any]] = [
    {"strategy": name} for name in FEWEST_PROCESSES if name not in ("pipeline", "parameter_server")
]
VARIANTS = [
    *VARIANTS,
    *({"strategy": "parameter_server", "server": mode} for mode in ("synchronous", "asynchronous")),
    {"strategy": "pipeline", "num_microbatches": 1},
    {"strategy": "pipeline", "schedule": "gpipe"},
    {"strategy": "pipeline", "schedule": "1f1b"},
]


def possible(variant: Mapping[str, Any], config: Config) -> bool:
    """Whether this machine has what the strategy needs; says why not."""
    try:
        vgg19_cifar10.layout({**config, **variant}, machine())
    except InfeasibleError as error:
        print(f"left out: {error}")
        return False
    return True


def words(variant: Mapping[str, Any]) -> str:
    """`pipeline num_microbatches=1`."""
    return " ".join([variant["strategy"], *(f"{k}={v}" for k, v in variant.items() if k != "strategy")])


def probed(variant: Mapping[str, Any], config: Config, data: Data) -> dict[str, float]:
    """The metrics of a probe in processes of its own."""
    with tempfile.TemporaryDirectory() as folder:
        given = [f"{name}={str(value).lower()}" for name, value in {**config, **variant}.items()]
        place = ["--data", data.name, *(["--root", data.root] if data.root else [])]
        command = [sys.executable, "-m", "trainables.train", "--probe", "--folder", folder, *place, *given]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with (Path(folder) / "curves.csv").open(newline="") as file:
            (row,) = csv.DictReader(file)
    return {name: float(row[name]) for name in ("images_per_second", "communicate_seconds", "step_seconds")}


def compare_strategies(config: Config, data: Data, rounds: int) -> dict[str, float]:
    """Every strategy in every round; prints a table, returns the median ratios."""
    variants = [variant for variant in VARIANTS if possible(variant, config)]
    found: dict[str, list[dict[str, float]]] = {words(variant): [] for variant in variants}
    order = random.Random(0)
    for _ in range(rounds):
        for variant in order.sample(variants, len(variants)):
            found[words(variant)].append(probed(variant, config, data))
    print("| strategy | images/s, median (range) | of single, median (range) | communication |")
    print("| --- | --- | --- | --- |")
    figures = {}
    for name, probes in found.items():
        rates = [probe["images_per_second"] for probe in probes]
        ratios = [rate / alone["images_per_second"] for rate, alone in zip(rates, found["single"], strict=True)]
        waiting = statistics.median(probe["communicate_seconds"] / probe["step_seconds"] for probe in probes)
        figures[name.replace(" ", "_").replace("=", "_")] = round(statistics.median(ratios), 4)
        print(f"| {name} | {spread(rates, ',.0f')} | {spread(ratios, '.2f')} | {waiting:.0%} |")
    return figures


def spread(values: Sequence[float], form: str) -> str:
    """Median and range."""
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


# --- our loop beside a bare one ---------------------------------------------------------------------------------------


def bare(settings: Settings, worker: LocalWorker) -> float:
    """Images per second, of all processes, by a loop as one would write it for DistributedDataParallel."""
    pictures, device = cifar10.training_pictures(worker.data), device_of(worker)
    indices, _ = cifar10.split(pictures.labels, worker.data)
    plan = Plan(indices, settings.batch_size, 0, Share(worker.rank, worker.world_size))
    torch.manual_seed(0)
    model = DistributedDataParallel(network(settings, pictures.num_classes, device), gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), 0.001, 0.9, weight_decay=5e-4, nesterov=True, fused=True)
    normalized = normalization(device)
    started, steps = time.perf_counter(), 0
    while True:
        for draws in plan.epoch(1):
            pixels = torch.from_numpy(pictures.images[draws.indices]).to(device)
            corners, flips = (torch.from_numpy(x).to(device) for x in (draws.corners, draws.flips))
            images = normalized(augmented(pixels, corners, flips))
            labels = torch.from_numpy(pictures.labels[draws.indices]).to(device)
            with autocast(settings, device):
                loss = torch.nn.functional.cross_entropy(model(arranged(images, settings)), labels, label_smoothing=0.1)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            steps += 1
            if steps == BARE_WARMUP_STEPS:
                started = now(device)
            elif steps > BARE_WARMUP_STEPS and steps % 10 == 0 and over(started, device):
                return (steps - BARE_WARMUP_STEPS) * settings.batch_size / (now(device) - started)


def over(started: float, device: torch.device) -> bool:
    """Whether the time of the first rank is up."""
    up = torch.tensor(float(now(device) - started > BARE_SECONDS), device=device)
    dist.broadcast(up, src=0)
    return bool(up)


def now(device: torch.device) -> float:
    """Seconds, with the device's work done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def rank(number: int, layout: Layout, config: dict[str, Any], data: Data, folder: str, rounds: int) -> None:
    """One of the processes that stay up: both loops in turn; rank 0 writes the rates down."""
    backend = "nccl" if layout.gpus_per_process else "gloo"
    dist.init_process_group(backend, init_method=f"file://{folder}/store", rank=number, world_size=layout.processes)
    settings = Settings(**checked(config, vgg19_cifar10.PARAMETERS or {}))
    resources = Resources(layout.cpus_per_process, layout.gpus_per_process)

    def ours(worker: LocalWorker) -> float:
        vgg19_cifar10.probe(config, worker)
        return worker.reported[-1].metrics["images_per_second"]

    def by_hand(worker: LocalWorker) -> float:
        with claimed_cores(resources.cpus):
            return isolated(lambda: bare(settings, worker), threads=resources.cpus, allocator=settings.allocator)

    rates = []
    for turn in range(rounds):
        worker = LocalWorker(Path(folder), 1, data, resources, number, layout.processes)
        # Each goes first in every other round: what a machine drifts by falls on both.
        order = [ours, by_hand] if turn % 2 == 0 else [by_hand, ours]
        measured = {loop: loop(worker) for loop in order}
        rates.append((measured[ours], measured[by_hand]))
    if number == 0:
        (Path(folder) / "rates.json").write_text(json.dumps(rates))
    dist.destroy_process_group()


def compare_loops(config: Config, data: Data, rounds: int) -> dict[str, float]:
    """What the shared loop costs; prints both rates."""
    config = {**config, "strategy": "ddp"}
    layout = vgg19_cifar10.layout(config, machine())
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            context.Process(target=rank, args=(number, layout, config, data, folder, rounds))
            for number in range(layout.processes)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        rates = json.loads((Path(folder) / "rates.json").read_text())
    overheads = [1 - ours / by_hand for ours, by_hand in rates]
    print(
        f"our loop: {spread([r[0] for r in rates], ',.0f')} images/s; by hand: {spread([r[1] for r in rates], ',.0f')}"
    )
    error = statistics.stdev(overheads) / rounds**0.5 if rounds > 1 else math.inf
    print(
        f"overhead of our loop: {spread(overheads, '.1%')}; mean {statistics.mean(overheads):.1%}"
        f" ± {2 * error:.1%} (two standard errors), {rounds} rounds"
    )
    return {"loop_overhead": round(statistics.median(overheads), 4)}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="*", metavar="NAME=VALUE")
    parser.add_argument("--root", help="an image folder; without it generated pictures are used")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--loops", action="store_true", help="compare only our loop with a bare one")
    options = parser.parse_args()
    given = {name: parsed(value) for name, _, value in (setting.partition("=") for setting in options.settings)}
    config: dict[str, Any] = {"batch_size": 128, "width": 0.25, **given}
    data = Data("folder", f"{Path(options.root).resolve()}") if options.root else Data("generated")
    data = vgg19_cifar10.locate_data(data)
    print(f"{os.cpu_count()} cores, {torch.cuda.device_count()} GPUs; load {os.getloadavg()[0]:.1f}; {config}")
    print(f"{vgg19_cifar10.describe_data(data)}; {time.strftime('%Y-%m-%d')}")
    figures = {} if options.loops else compare_strategies(config, data, options.rounds)
    figures |= compare_loops(config, data, options.rounds)
    print(json.dumps({**figures, "rounds": options.rounds}))


if __name__ == "__main__":
    main()
