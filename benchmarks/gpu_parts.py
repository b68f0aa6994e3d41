"""Parts of the GPU benchmark, each measured in a process of its own: see `gpu.py`."""

from __future__ import annotations

import argparse
import functools
import itertools
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from command_line import CORES, RESOURCES
from gpu_comparison import Comparison, expert_here
from gpu_conditions import conditions_of, difference, is_emulated
from gpu_sizes import FULL, SMALL, Sizes
from gpu_tables import label
from gpu_tests import run_tests
from steps_file import StepsFile, Values

from trainables.contract import Data, DataError, InfeasibleError
from trainables.local_worker import LocalWorker
from trainables.machine import isolation
from trainables.machine.ceilings import ceilings
from trainables.measure import probe_end
from trainables.samples.picture_source import training_pictures
from trainables.vgg19_cifar10 import trainable as vgg19_cifar10

DEVICE_LOST = 75  # exit code, see `gpu.py`
Steps = dict[str, Callable[[], Values]]


def measure(part: str, options: argparse.Namespace, file: StepsFile) -> int:
    """Measure the steps of a part that have not ended; return the exit code of this process."""
    if not torch.cuda.is_available():
        print(f"gpu: PyTorch {torch.__version__} finds no CUDA device here", file=sys.stderr)
        return 2
    if part == "tests":
        run_tests(options.tests, file)
        return 0
    sizes = SMALL if options.small else FULL
    data = Data("auto", options.root, train_images=sizes.train_images, val_images=sizes.val_images)
    try:
        data = vgg19_cifar10.locate_data(data)
    except DataError as error:
        print(f"gpu: {error}", file=sys.stderr)
        return 2
    if part == "conditions" and (reason := changed_conditions(options, data, file)):
        print(f"gpu: {reason}: choose another --folder", file=sys.stderr)
        return 2
    probe_end.PROBE_SECONDS, probe_end.MAX_PROBE_SECONDS = sizes.probe_seconds, sizes.probe_seconds + 1
    steps = {
        "conditions": lambda: conditions(options, data),
        "batch sizes": lambda: batch_sizes(sizes, data),
        "settings": lambda: settings(sizes, data, file),
        "comparison": lambda: comparison(sizes, data, file),
        "loader processes": lambda: loader_processes(sizes, data),
        "training": lambda: trainings(sizes, data),
    }[part]()
    if part != "comparison":  # its loops are kept, the others isolate each trial
        return run(part, steps, file)
    return isolation.isolated(lambda: run(part, steps, file), threads=CORES)


def run(part: str, steps: Steps, file: StepsFile) -> int:
    """Measure the steps that have not ended; return the exit code, DEVICE_LOST if this process cannot continue."""
    for error in file.run(part, steps, reason_of):
        if error is not None and not device_answers():
            return DEVICE_LOST
    return 0


def device_answers() -> bool:
    """Return False after an error that has made the GPU unusable for this process."""
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


def reason_of(error: Exception) -> str:
    """Describe an error in one line."""
    line = (str(error).splitlines() or [""])[0]
    return line if isinstance(error, InfeasibleError) else f"{type(error).__name__}: {line}"


def changed_conditions(options: argparse.Namespace, data: Data, file: StepsFile) -> str | None:
    """Return how the conditions differ from those of the steps in the file; None: not at all."""
    before = file.read("conditions").measured.get("conditions")
    return None if before is None else difference(before, conditions_of(options, data))


def conditions(options: argparse.Namespace, data: Data) -> Steps:
    """Conditions, pictures that all parts share, and ceilings."""

    def prepared() -> Values:
        return {"pictures": len(training_pictures(data).labels)}

    def measured_ceilings() -> Values:
        found = isolation.isolated(lambda: ceilings(1, torch.device("cuda", 0)), threads=CORES)
        return vars(found)

    return {"conditions": lambda: conditions_of(options, data), "pictures": prepared, "ceilings": measured_ceilings}


def batch_sizes(sizes: Sizes, data: Data) -> Steps:
    """Our loop at its defaults by batch size."""
    return probes([{"batch_size": batch} for batch in sizes.batches], sizes, data)


def settings(sizes: Sizes, data: Data, file: StepsFile) -> Steps:
    """Our loop with and without `compile` and `cuda_graphs`, at the default and at the fastest batch size.

    With both also at the second fastest: compiled, a smaller batch can be the fastest.
    """
    rows = file.read("batch sizes").measured.values()
    fastest = [row["config"]["batch_size"] for row in sorted(rows, key=lambda row: -row["images_per_second"])]
    batches = dict.fromkeys([sizes.batches[0], *fastest[:1]])
    switches = list(itertools.product(batches, (False, True), (False, True)))
    switches += [(batch, True, True) for batch in fastest[1:2] if batch not in batches]
    return probes(
        [
            {"batch_size": batch, "loader": "device", "compile": compile, "cuda_graphs": graphs}
            for batch, compile, graphs in switches
        ],
        sizes,
        data,
    )


def loader_processes(sizes: Sizes, data: Data) -> Steps:
    """Loader `workers` by number of its processes, with and without pinned memory."""
    return probes(
        [
            {"batch_size": sizes.batches[0], "loader": "workers", "num_workers": n, "pin_memory": pin}
            for n, pin in itertools.product(sizes.workers, (False, True))
        ],
        sizes,
        data,
    )


def probes(configs: Sequence[Mapping[str, Any]], sizes: Sizes, data: Data) -> Steps:
    """One step for each configuration."""
    return {label(config): functools.partial(probe, config, sizes, data) for config in configs}


def probe(config: Mapping[str, Any], sizes: Sizes, data: Data) -> Values:
    """Return all metrics of a probe in this process."""
    refuse_compilation_if_emulated(config)
    settings = {**sizes.fixed, **config}
    vgg19_cifar10.layout(settings, RESOURCES)  # refuses what cannot run here
    with tempfile.TemporaryDirectory() as folder:
        worker = LocalWorker(Path(folder), data=data, resources=RESOURCES)
        vgg19_cifar10.probe(settings, worker)
    return {"config": dict(config), **worker.reported[-1].metrics}


def refuse_compilation_if_emulated(config: Mapping[str, Any]) -> None:
    """Raise InfeasibleError for `compile` on an emulated GPU."""
    if config.get("compile") and is_emulated():
        raise InfeasibleError("torch.compile is not emulated")


def best_config(file: StepsFile, parts: Sequence[str], batch_size: int | None = None) -> dict[str, Any] | None:
    """Return the fastest configuration that these parts measured, of any batch size or of this one."""
    rows = [row for part in parts for row in file.read(part).measured.values()]
    rows = [row for row in rows if batch_size in (None, row["config"]["batch_size"])]
    fastest = max(rows, key=lambda row: float(row["images_per_second"]), default=None)
    return None if fastest is None else dict(fastest["config"])


def comparison(sizes: Sizes, data: Data, file: StepsFile) -> Steps:
    """The loops in turn, each at the default and at its fastest batch size."""
    default = {"batch_size": sizes.batches[0]}
    measured = ["batch sizes", "settings"]
    ours = [default, best_config(file, measured, sizes.batches[0]) or default, best_config(file, measured) or default]
    by_hand = [default, {**default, "batch_size": ours[-1]["batch_size"]}]
    sides = [("textbook", config) for config in by_hand] + [(expert_here(), config) for config in by_hand]
    sides += [("ours", config) for config in ours]
    turns = Comparison(data, sizes.fixed, sizes.turn_seconds)
    distinct = {f"{side}, {label(config)}": (side, config) for side, config in sides}
    return {
        f"turn {number}, {name}": functools.partial(turns.turn, side, config)
        for number in range(1, sizes.repeats + 1)
        for name, (side, config) in distinct.items()
    }


def trainings(sizes: Sizes, data: Data) -> Steps:
    """Trainings from the start to the end of their schedule, each with its own seed."""
    return {f"seed {seed}": functools.partial(train, sizes, data, seed) for seed in range(sizes.trainings)}


def train(sizes: Sizes, data: Data, seed: int) -> Values:
    """Train, then test the last weights; the seconds are those of the training with its start and its evaluations."""
    config = {**sizes.fixed, **sizes.training, "seed": seed}
    with tempfile.TemporaryDirectory() as folder:
        worker = LocalWorker(Path(folder), sizes.epochs, data, RESOURCES, all_views=True)
        started = time.perf_counter()
        vgg19_cifar10.train(config, worker)
        seconds = time.perf_counter() - started
        tested = dict(vgg19_cifar10.test(config, worker))
    epochs = [dict(each.metrics) for each in worker.reported]
    return {"config": dict(sizes.training), "seconds": seconds, **tested, "epochs": epochs}
