"""Train one configuration, without search and without Ray.

    python -m trainables.train --epochs 12 --folder runs/mine batch_size=256 learning_rate=0.1 precision=bf16

One line an epoch; curves.csv and the checkpoint are in the folder, and what --test measures is in test.json. Run again,
it goes on from the checkpoint. With --probe it measures for some seconds instead: rate, stage times, memory, and what
bounds them.
Exit codes: 0 done, 1 failed, 2 bad input or a configuration that cannot run here, 130 interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NoReturn

from trainables.contract import (
    TRAINABLES,
    Data,
    DataError,
    InfeasibleError,
    Layout,
    Measurement,
    PeerLostError,
    Resources,
    Trainable,
    load_trainable,
    patience_seconds,
)
from trainables.output import findings, line, record
from trainables.settings import checked, nearest, parsed

LOST_ANOTHER = 75  # exit code of a rank that only noticed that another is gone or silent
GRACE_SECONDS = 5.0  # after such a one, for the other to end too
DATA_NAMES = ("auto", "cifar10", "folder", "generated")
Listener = Callable[[Measurement], bool]


@dataclass
class LocalWorker:
    """A process of a trial that is run by hand: it keeps what is reported, and asks `listener` whether to go on."""

    folder: Path
    epochs: int = 1
    data: Data = field(default_factory=lambda: Data(name="generated"))
    resources: Resources = field(default_factory=lambda: Resources(cpus=1))
    rank: int = 0
    world_size: int = 1
    listener: Listener = lambda measurement: True
    reported: list[Measurement] = field(default_factory=list)

    def report(self, measurement: Measurement) -> bool:
        """Keep it. With several processes `listener` must give the same answer in all of them."""
        self.reported.append(measurement)
        return self.listener(measurement)


@dataclass(frozen=True)
class Job:
    """One configuration to be trained in so many processes, and tested if asked for."""

    trainable: str
    config: dict[str, Any]
    data: Data
    folder: Path
    epochs: int
    probe: bool
    test: bool
    layout: Layout

    def listener(self, measurement: Measurement) -> bool:
        """For people, and for curves.csv."""
        trainable = load_trainable(self.trainable)
        if self.probe:
            verdict = trainable.explain(self.config, measurement.metrics, machine())
            said = findings(measurement.metrics, trainable.METRICS or {}, verdict)
        else:
            said = line(measurement, self.epochs)
        record(self.folder / "curves.csv", self.config, measurement)  # first: who reads the line may look it up
        print(said, flush=True)
        return True


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    try:
        job = _job(_parser().parse_intermixed_args(arguments))
        with _alone(job.folder):
            return run(job)
    except (ValueError, LookupError, InfeasibleError, DataError) as error:
        print(f"train: {error}", file=sys.stderr)
        return 2
    except (FloatingPointError, OSError) as error:
        print(f"train: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("train: interrupted; the same command goes on from the last checkpoint", file=sys.stderr)
        return 130


# --- what is asked for ------------------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m trainables.train", description="Train one configuration.", allow_abbrev=False)
    parser.add_argument("settings", nargs="*", metavar="NAME=VALUE", help="parameters of the trainable")
    parser.add_argument("--trainable", default=TRAINABLES[0], help=", ".join(TRAINABLES))
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--probe", action="store_true", help="measure for some seconds, do not train to an end")
    parser.add_argument("--folder", type=Path, required=True, help="takes curves.csv and the checkpoint")
    parser.add_argument("--data", default="auto", help=", ".join(DATA_NAMES))
    parser.add_argument("--root", help="where the pictures are")
    parser.add_argument("--download", action="store_true", help="fetch CIFAR-10 if it is not there")
    parser.add_argument("--train-images", type=int, help="train on so many pictures only")
    parser.add_argument("--val-images", type=int, default=Data.val_images)
    parser.add_argument("--test", action="store_true", help="measure on the test pictures at the end")
    return parser


def _job(options: argparse.Namespace) -> Job:
    """Everything checked; the folder is made.

    Raises:
        ValueError, LookupError, InfeasibleError, DataError: one line that says what is wrong and what is near.
    """
    for name, names in (("trainable", TRAINABLES), ("data", DATA_NAMES)):
        if getattr(options, name) not in names:
            raise LookupError(f'no {name} "{getattr(options, name)}"{nearest(getattr(options, name), names)}')
    if options.epochs < 1:
        raise ValueError(f"--epochs {options.epochs}: at least one is needed")
    trainable = load_trainable(options.trainable)
    config = _config(options.settings, trainable)
    layout = trainable.layout(config, machine())
    data = Data(options.data, options.root, options.download, options.train_images, options.val_images)
    data = trainable.locate_data(data)
    print(f"data: {trainable.describe_data(data)}", flush=True)
    job = Job(options.trainable, config, data, options.folder, options.epochs, options.probe, options.test, layout)
    _claim(job)
    return job


def _config(settings: Sequence[str], trainable: Trainable) -> dict[str, Any]:
    pairs = [setting.partition("=") for setting in settings]
    for name, equals, _ in pairs:
        if not equals:
            raise ValueError(f'"{name}" is no NAME=VALUE')
    config = {name: parsed(value) for name, _, value in pairs}
    return config if trainable.PARAMETERS is None else checked(config, trainable.PARAMETERS)


def machine() -> Resources:
    """All that this process may use."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        import torch
    except ImportError:
        return Resources(cpus)
    return Resources(cpus, torch.cuda.device_count())


def _claim(job: Job) -> None:
    """A folder goes with one configuration: another one must not go on from its checkpoint."""
    job.folder.mkdir(parents=True, exist_ok=True)
    path = job.folder / "config.json"
    pictures = {"data": job.data.name, "train_images": job.data.train_images, "val_images": job.data.val_images}
    about = {"trainable": job.trainable, "epochs": job.epochs, **pictures}
    mine = json.dumps({**about, **job.config}, indent=1, sort_keys=True)
    if path.exists() and path.read_text() != mine:
        raise ValueError(f"--folder {job.folder}: another configuration was trained there, see config.json")
    path.write_text(mine)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Nobody else trains in the folder meanwhile: two would write one checkpoint."""
    from filelock import FileLock, Timeout

    lock = FileLock(folder / "training.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ValueError(f"--folder {folder}: another process is training there") from None
    try:
        yield
    finally:
        lock.release()


# --- what is done -----------------------------------------------------------------------------------------------------


def run(job: Job) -> int:
    """Train, in this process or in as many as the layout says; the exit code."""
    if job.layout.processes == 1:
        _work(job, rank=0)
        return 0
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as meeting_point:
        processes = [
            context.Process(target=_process, args=(job, rank, f"file://{meeting_point}/store"))
            for rank in range(job.layout.processes)
        ]
        try:
            for process in processes:
                process.start()
            ended = _wait(processes)
        finally:
            for process in (each for each in processes if each.pid is not None):
                process.kill()  # those that wait for one that failed would wait for ever
                process.join()
    code, reason = blamed(ended, len(processes), patience_seconds())
    if reason is not None:
        print(f"train: {reason}", file=sys.stderr)
    return code


def _wait(processes: Sequence[BaseProcess]) -> dict[int, int]:
    """Until all have ended, or for as long as is worth it; the exit codes by rank, in the order in which they ended."""
    ended: dict[int, int] = {}
    deadline = math.inf
    while len(ended) < len(processes) and time.monotonic() < deadline:
        running = [process.sentinel for rank, process in enumerate(processes) if rank not in ended]
        timeout = None if deadline == math.inf else max(0.0, deadline - time.monotonic())
        multiprocessing.connection.wait(running, timeout)
        for rank, process in enumerate(processes):
            if rank not in ended and (code := process.exitcode) is not None:
                ended[rank] = code
                seconds = {0: patience_seconds(), LOST_ANOTHER: GRACE_SECONDS}.get(code, 0.0)
                deadline = min(deadline, time.monotonic() + seconds)
    return ended


def blamed(ended: Mapping[int, int], processes: int, patience: float) -> tuple[int, str | None]:
    """The exit code for all, and which rank it is put down to; not one that only noticed. None: all ended well.

    `ended`: exit codes by rank, in order, negative: by a signal; a rank that is not there did not end.
    """
    for rank, code in ended.items():
        if code < 0:
            return 1, f"rank {rank} was ended by {signal.Signals(-code).name}"
    for rank, code in ended.items():
        if code not in (0, LOST_ANOTHER):
            return code, f"rank {rank} failed"
    silent = [f"{rank}" for rank in range(processes) if rank not in ended]
    if silent:
        return 1, f"rank {' and '.join(silent)} did not answer the others for {patience:.0f} s"
    if LOST_ANOTHER in ended.values():
        return 1, f"the ranks waited for each other in vain, up to {patience:.0f} s"
    return 0, None


def _process(job: Job, rank: int, meeting_point: str) -> None:
    """One rank."""
    threading.Thread(target=_end_with_main, daemon=True).start()
    import torch
    import torch.distributed as dist

    backend = "nccl" if job.layout.gpus_per_process else "gloo"
    if backend == "nccl":
        torch.cuda.set_device(rank % torch.cuda.device_count())
    patience = timedelta(seconds=patience_seconds())
    dist.init_process_group(
        backend, init_method=meeting_point, rank=rank, world_size=job.layout.processes, timeout=patience
    )
    try:
        _work(job, rank)
    except (ValueError, InfeasibleError, DataError) as error:
        print(f"train: rank {rank}: {error}", file=sys.stderr)
        sys.exit(2)
    except (FloatingPointError, OSError) as error:
        print(f"train: rank {rank}: {error}", file=sys.stderr)
        sys.exit(1)
    except PeerLostError:
        sys.exit(LOST_ANOTHER)  # the other is to say why
    except KeyboardInterrupt:
        sys.exit(130)
    dist.destroy_process_group()


def _end_with_main() -> None:
    """A rank does not train on when the process that started it is gone, however it went."""
    if (main_process := multiprocessing.parent_process()) is not None:
        main_process.join()
        os._exit(LOST_ANOTHER)


def _work(job: Job, rank: int) -> None:
    trainable = load_trainable(job.trainable)
    resources = Resources(job.layout.cpus_per_process, job.layout.gpus_per_process)
    listener: Listener = job.listener if rank == 0 else lambda measurement: True
    worker = LocalWorker(job.folder, job.epochs, job.data, resources, rank, job.layout.processes, listener)
    (trainable.probe if job.probe else trainable.train)(job.config, worker)
    if job.test:
        metrics = trainable.test(job.config, worker)
        if rank == 0:
            (job.folder / "test.json").write_text(json.dumps(dict(metrics)))
            print(", ".join(f"{name} {value:.4f}" for name, value in metrics.items()))


if __name__ == "__main__":
    sys.exit(main())
