"""Cost of each parallel strategy: its rate relative to `single`, and our training loop beside a minimal one.

    python benchmarks/strategies.py [--rounds 5] [--loops] [--root PICTURES] [batch_size=128 width=0.25 ...]

Each round probes every strategy that this machine can run once (`trainables.train --probe`), in random order. All have
the same global batch on the same cores or GPUs; `single` uses all cores, or one GPU. A ratio is a round's rate divided
by that of `single`; medians over the rounds are printed. Then two long-lived processes alternate between probes of the
strategy `ddp` and the same training as a DistributedDataParallel loop of twenty lines. The last line is one JSON
object.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import random
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from command_line import conditions, parse_settings, parser_of, run_training, settings_of
from torch.nn.parallel import DistributedDataParallel

from trainables.build import device_of, network
from trainables.contract import Config, Data, InfeasibleError, Layout, Resources
from trainables.local_worker import LocalWorker, machine
from trainables.machine.affinity import claimed_cores
from trainables.machine.devices import synchronize
from trainables.machine.isolation import isolated
from trainables.plan import Plan, Share
from trainables.samples import picture_source
from trainables.samples.loaders import augmented, normalization, share_drawn
from trainables.samples.split import split
from trainables.step import arranged, autocast
from trainables.strategy_table import STRATEGIES
from trainables.vgg19_cifar10 import trainable as vgg19_cifar10
from trainables.vgg19_settings import Vgg19Settings
from trainables.workloads import vgg19

BARE_WARMUP_STEPS, BARE_SECONDS = 6, 6.0
# Each strategy with its own settings.
VARIANTS: Sequence[Mapping[str, Any]] = [
    {"strategy": name} for name in STRATEGIES if name not in ("pipeline", "parameter_server")
]
VARIANTS = [
    *VARIANTS,
    *({"strategy": "parameter_server", "server": mode} for mode in ("synchronous", "asynchronous")),
    {"strategy": "pipeline", "num_microbatches": 1},
    {"strategy": "pipeline", "schedule": "gpipe"},
    {"strategy": "pipeline", "schedule": "1f1b"},
]


def possible(variant: Mapping[str, Any], config: Config) -> bool:
    """Check whether this machine can run the strategy; print the reason if it cannot."""
    try:
        vgg19_cifar10.layout({**config, **variant}, machine())
    except InfeasibleError as error:
        print(f"left out: {error}")
        return False
    return True


def words(variant: Mapping[str, Any]) -> str:
    """Return the name of a variant, such as `pipeline num_microbatches=1`."""
    return " ".join([variant["strategy"], *(f"{k}={v}" for k, v in variant.items() if k != "strategy")])


def probed(variant: Mapping[str, Any], config: Config, data: Data) -> dict[str, float]:
    """Return the metrics of a probe in child processes."""
    with tempfile.TemporaryDirectory() as folder:
        return run_training({**config, **variant}, data, Path(folder), probe=True)


def compare_strategies(config: Config, data: Data, rounds: int) -> dict[str, float]:
    """Probe every strategy in every round; print a table and return the median ratios."""
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
    """Format the median and the range."""
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


# --- our loop beside a minimal one ------------------------------------------------------------------------------------


def bare(settings: Vgg19Settings, worker: LocalWorker) -> float:
    """Return the images per second of all processes in a minimal DistributedDataParallel loop."""
    pictures, device = picture_source.training_pictures(worker.data), device_of(worker)
    indices, _ = split(pictures.labels, worker.data)
    plan = Plan(indices, settings.batch_size, 0, Share(worker.rank, worker.world_size))
    torch.manual_seed(0)
    model = DistributedDataParallel(
        network(settings, vgg19.shape_for(pictures.num_classes), device), gradient_as_bucket_view=True
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.001, 0.9, weight_decay=5e-4, nesterov=True, fused=True)
    normalized = normalization(device)
    started, steps = time.perf_counter(), 0
    while True:
        for draws in share_drawn(plan, 1, 2 * settings.crop_padding):
            pixels = torch.from_numpy(pictures.images[draws.indices]).to(device)
            corners, flips = (torch.from_numpy(x).to(device) for x in (draws.corners, draws.flips))
            images = normalized(augmented(pixels, corners, flips, settings.crop_padding))
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
    """Check on all ranks whether the time of rank 0 is over."""
    up = torch.tensor(float(now(device) - started > BARE_SECONDS), device=device)
    dist.broadcast(up, src=0)
    return bool(up)


def now(device: torch.device) -> float:
    """Return the time in seconds after the device has finished its work."""
    synchronize(device)
    return time.perf_counter()


def rank(number: int, layout: Layout, config: dict[str, Any], data: Data, folder: str, rounds: int) -> None:
    """Run both loops in turn in one long-lived process; rank 0 writes the rates to a file."""
    backend = "nccl" if layout.gpus_per_process else "gloo"
    dist.init_process_group(backend, init_method=f"file://{folder}/store", rank=number, world_size=layout.processes)
    settings = settings_of(config)
    resources = Resources(layout.cpus_per_process, layout.gpus_per_process)

    def ours(worker: LocalWorker) -> float:
        vgg19_cifar10.probe(config, worker)
        return worker.reported[-1].metrics["images_per_second"]

    def minimal(worker: LocalWorker) -> float:
        with claimed_cores(resources.cpus):
            return isolated(lambda: bare(settings, worker), threads=resources.cpus, allocator=settings.allocator)

    rates = []
    for turn in range(rounds):
        worker = LocalWorker(Path(folder), 1, data, resources, number, layout.processes)
        # The order alternates, so that drift of the machine affects both loops.
        order = [ours, minimal] if turn % 2 == 0 else [minimal, ours]
        measured = {loop: loop(worker) for loop in order}
        rates.append((measured[ours], measured[minimal]))
    if number == 0:
        (Path(folder) / "rates.json").write_text(json.dumps(rates))
    dist.destroy_process_group()


def compare_loops(config: Config, data: Data, rounds: int) -> dict[str, float]:
    """Print the rates of both loops and return the overhead of ours."""
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
    overheads = [1 - ours / minimal for ours, minimal in rates]
    for name, values in zip(("our loop", "minimal loop"), zip(*rates, strict=True), strict=True):
        print(f"{name}: {spread(values, ',.0f')} images/s")
    error = statistics.stdev(overheads) / rounds**0.5 if rounds > 1 else math.inf
    mean = f"mean {statistics.mean(overheads):.1%} ± {2 * error:.1%} (two standard errors)"
    print(f"overhead of our loop: {spread(overheads, '.1%')}; {mean}, {rounds} rounds")
    return {"loop_overhead": round(statistics.median(overheads), 4)}


def main() -> None:
    """Compare the strategies, then the loops."""
    parser = parser_of(__doc__)
    parser.add_argument("settings", nargs="*", metavar="NAME=VALUE")
    parser.add_argument("--root", help="image folder; generated images without it")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--loops", action="store_true", help="compare only the two loops")
    options = parser.parse_args()
    config: dict[str, Any] = {"batch_size": 128, "width": 0.25, **parse_settings(options.settings)}
    data = Data("folder", f"{Path(options.root).resolve()}") if options.root else Data("generated")
    data = vgg19_cifar10.locate_data(data)
    print(f"{conditions()}, {torch.cuda.device_count()} GPUs; {config}")
    print(f"{vgg19_cifar10.describe_data(data)}; {time.strftime('%Y-%m-%d')}")
    figures = {} if options.loops else compare_strategies(config, data, options.rounds)
    figures |= compare_loops(config, data, options.rounds)
    print(json.dumps({**figures, "rounds": options.rounds}))


if __name__ == "__main__":
    main()
