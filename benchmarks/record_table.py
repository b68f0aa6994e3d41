"""Recorder of our search problem: VGG-19 at an eighth of its width on real images.

    python benchmarks/record_table.py [--folder benchmarks/tables] [--limit N]

The space is a product (see `vgg19_table.py`), but not every point of it is run. Accuracy depends on batch size,
learning rate and precision; the rate depends on batch size, precision, loader, strategy and threads. Each distinct
setting of the first group is trained once (vgg19-curves.csv), each distinct setting of the second group is probed once
(vgg19-rates.csv), and the table is their join. To check the join, 20 random points are trained completely
(vgg19-checks.csv). There is one seed: n is 1 throughout. The benchmark needs the machine to itself. Rows are appended
as they are measured; a second call runs what is missing. Conditions are in vgg19.json.
"""

from __future__ import annotations

import argparse
import csv
import json
import multiprocessing
import os
import platform
import queue
import random
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, NamedTuple

import vgg19_table as table

from search.space.machine import cpu_name
from trainables.contract import Data, Resources
from trainables.local_worker import LocalWorker
from trainables.vgg19_cifar10 import trainable as vgg19_cifar10

PROBE_SECONDS = 3.0  # instead of 8: these trainings are shorter too
DATA = Data(train_images=table.TRAIN_IMAGES, val_images=1000)
CONTEXT = multiprocessing.get_context("spawn")  # a forked process would share threads with this one
Kind = Literal["curves", "rates", "checks"]
FILES: Mapping[Kind, tuple[tuple[str, ...], tuple[str, ...]]] = {  # columns that identify a row, and measured columns
    "curves": (
        table.ACCURACY,
        ("epoch", "val_accuracy", "val_loss", "epoch_seconds", "evaluation_seconds", "setup_seconds"),
    ),
    "rates": (
        table.RATE,
        ("images_per_second", "images_per_second_low", "images_per_second_high", "contended", "probe_seconds"),
    ),
    "checks": (tuple(table.SPACE), ("epoch", "val_accuracy", "images_per_second", "contended", "trial_seconds")),
}


class Task(NamedTuple):
    """Training or probe to run, and the kind of file for its rows."""

    kind: Kind
    config: dict[str, Any]

    @property
    def processes(self) -> int:
        """Number of processes of the trial."""
        return 2 if self.config.get("strategy") == "ddp" else 1


def main() -> None:
    """Run the missing tasks; print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent / "tables")
    parser.add_argument("--limit", type=int, help="maximum of tasks of each kind and number of processes")
    options = parser.parse_args()
    data = vgg19_cifar10.locate_data(DATA)
    if data.name == "generated":
        raise SystemExit("real images are needed; set TRAINING_SEARCH_DATA to their folder")
    options.folder.mkdir(exist_ok=True)
    _write_conditions(options.folder / "vgg19.json", data)
    missing = [task for task in tasks() if not _done(options.folder, task)]
    print(f"{len(missing)} of {len(tasks())} tasks to run", flush=True)
    for processes in (1, 2):
        here = [task for task in missing if task.processes == processes]
        here = [task for kind in FILES for task in [t for t in here if t.kind == kind][: options.limit]]
        for task, rows, seconds in crew(processes, here, data):
            _append(options.folder, task, rows)
            said = " ".join(f"{name} {_number(rows[-1], name)}" for name in FILES[task.kind][1])
            print(f"{task.kind} {task.config} {seconds:.1f} s: {said}", flush=True)


def tasks() -> list[Task]:
    """Return all tasks in a fixed random order, so that drift of the machine does not look like an effect."""
    checked = random.Random(1).sample(table.configs(), 20)
    every = [Task("curves", config) for config in _distinct(table.ACCURACY)]
    every += [Task("rates", config) for config in _distinct(table.RATE)]
    random.Random(0).shuffle(every)
    return [*every, *(Task("checks", config) for config in checked)]


def crew(processes: int, tasks: list[Task], data: Data) -> Iterator[tuple[Task, list[dict[str, float]], float]]:
    """Run the tasks in long-lived processes; yield each with its rows and its seconds."""
    if not tasks:
        return
    results = CONTEXT.Queue()
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            CONTEXT.Process(target=_rank, args=(rank, processes, tasks, data, Path(folder), results))
            for rank in range(processes)
        ]
        for rank in ranks:
            rank.start()
        try:
            for _ in tasks:
                yield _next(results, ranks)
            for rank in ranks:
                rank.join()
        finally:
            for rank in ranks:
                rank.kill()
                rank.join()


def _next(results: Any, ranks: Iterable[Any]) -> Any:
    while True:
        try:
            return results.get(timeout=1.0)
        except queue.Empty:
            if any(rank.exitcode not in (None, 0) for rank in ranks):
                raise SystemExit("a process failed; the rows measured so far are kept") from None


def _rank(number: int, processes: int, tasks: list[Task], data: Data, folder: Path, results: Any) -> None:
    """Run the tasks in one process."""
    warnings.filterwarnings("ignore", "This DataLoader will create")  # the table includes more processes than cores
    from trainables.measure import probe_end

    probe_end.PROBE_SECONDS, probe_end.MAX_PROBE_SECONDS = PROBE_SECONDS, PROBE_SECONDS + 1
    if processes > 1:
        import torch.distributed as dist

        dist.init_process_group(
            "gloo",
            init_method=f"file://{folder}/store",
            rank=number,
            world_size=processes,
            timeout=timedelta(minutes=2),
        )
    resources = Resources(cpus=max(1, 2 // processes))
    for i, task in enumerate(tasks):
        worker = LocalWorker(folder / f"{i}", table.EPOCHS, data, resources, number, processes)
        worker.folder.mkdir(exist_ok=True)
        started = time.perf_counter()
        (vgg19_cifar10.probe if task.kind == "rates" else vgg19_cifar10.train)(_settings(task), worker)
        seconds = time.perf_counter() - started
        rows = [{"epoch": m.epoch, "contended": 0.0, **m.metrics} for m in worker.reported]
        setup = seconds - sum(row.get("epoch_seconds", 0) + row.get("evaluation_seconds", 0) for row in rows)
        rows = [{**row, "probe_seconds": seconds, "trial_seconds": seconds, "setup_seconds": setup} for row in rows]
        if number == 0:
            results.put((task, rows if task.kind == "curves" else rows[-1:], seconds))


def _settings(task: Task) -> dict[str, Any]:
    """Return the configuration of a task; where only accuracy counts, with settings that are likely to be fast."""
    config = {"strategy": "single", "loader": "memory", "threads": 2, **table.FIXED, **task.config}
    if task.kind == "rates":
        config["learning_rate"] = table.SPACE["learning_rate"][0]
    if task.processes > 1:
        config |= {"world_size": task.processes, "threads": 1}
    return {name: value for name, value in config.items() if value is not None}


def _distinct(names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the distinct settings of these parameters; None marks an inactive parameter."""
    keys = dict.fromkeys(tuple(config[name] for name in names) for config in table.configs())
    return [dict(zip(names, key, strict=True)) for key in keys]


# --- recorded files---------------------------------------------------------------------------------------------------


def _done(folder: Path, task: Task) -> bool:
    path = folder / f"vgg19-{task.kind}.csv"
    wanted = table.key(task.config, FILES[task.kind][0])
    return path.is_file() and any(table.key(row, FILES[task.kind][0]) == wanted for row in table.rows(path))


def _append(folder: Path, task: Task, rows: list[dict[str, float]]) -> None:
    """Append all rows of a task in one write, so that an interruption leaves no partial task."""
    path = folder / f"vgg19-{task.kind}.csv"
    names, measured = FILES[task.kind]
    lines = [
        {**{name: task.config[name] for name in names}, **{name: _number(row, name) for name in measured}}
        for row in rows
    ]
    new = not path.exists()
    with path.open("a", newline="", buffering=1 << 16) as file:
        writer = csv.DictWriter(file, (*names, *measured), lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows(lines)


def _number(row: Mapping[str, float], name: str) -> str:
    """Format a value; empty where it was not measured (an interval needs several windows)."""
    return f"{row[name]:.5g}" if name in row else ""


def _write_conditions(path: Path, data: Data) -> None:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    conditions = {
        "what": "VGG19 on CIFAR-10; curves trained and rates probed apart, and joined; see record_table.py; n = 1",
        "command": "python benchmarks/record_table.py",
        "commit": commit.stdout.strip(),
        "date": datetime.now(UTC).date().isoformat(),
        "processor": cpu_name(),
        "cores": os.cpu_count(),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in ("torch", "numpy")}},
        "data": vgg19_cifar10.describe_data(data),
        "epochs": table.EPOCHS,
        "probe_seconds": PROBE_SECONDS,
        "train_images": data.train_images,
        "fixed": table.FIXED,
    }
    path.write_text(json.dumps(conditions, indent=1) + "\n")


if __name__ == "__main__":
    main()
