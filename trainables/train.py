"""Train one configuration, without search and without Ray.

    python -m trainables.train --epochs 12 --folder runs/mine batch_size=256 learning_rate=0.1 precision=bf16

Prints one line per epoch; the folder has curves.csv, the checkpoint, and with --test test.json. The same command again
continues from the checkpoint. With --probe it only measures for some seconds: rate, stage times, memory, bottleneck.
With --turns it measures the rates of several configurations in turns.
With --json it prints one JSON object per line: {"data": ...}, {"epoch": 1, "metrics": {...}}, {"test": {...}},
{"error": ...}, and at times within an epoch {"in_epoch": 1, "step": 20, "steps": 352}.
Exit codes: 0 done, 1 failed, 2 bad input or a configuration that cannot run here, 130 interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from trainables.contract import (
    ANSWERS,
    EPOCHS,
    TRAINABLES,
    AlternativeError,
    Data,
    DataError,
    DeviceLostError,
    HelperLostError,
    InfeasibleError,
    Layout,
    Measurement,
    OwnCodeError,
    Resources,
    load_trainable,
    source_of,
    undated,
)
from trainables.local_worker import Listener, LocalWorker, machine
from trainables.output import WIDTH, findings, line, record, report, report_error, tested
from trainables.processes import INTERRUPTED, run_processes
from trainables.setting_check import checked, did_you_mean
from trainables.setting_text import parsed
from trainables.thread_waiting import thread_waiting

STEP_SECONDS = 10.0  # between two messages within an epoch
BAD_INPUT = (ValueError, InfeasibleError, DataError)
FAILURES = (FloatingPointError, OSError, OwnCodeError, DeviceLostError, HelperLostError)
DATA_NAMES = ("auto", "cifar10", "folder", "generated")


@dataclass(frozen=True)
class Job:
    """One configuration to train, and perhaps to test."""

    trainable: str
    config: dict[str, Any]
    data: Data
    folder: Path
    epochs: int
    probe: bool
    test: bool
    evaluate_every: int
    as_json: bool
    layout: Layout
    turns: tuple[dict[str, Any], ...] = ()  # configurations

    def listener(self, measurement: Measurement) -> bool:
        """Write an epoch to curves.csv, and print it or the probe."""
        trainable = load_trainable(self.trainable)
        if self.probe:
            verdict = trainable.explain(self.config, measurement.metrics, machine())
            text = findings(measurement.metrics, trainable.METRICS or {}, verdict)
        else:
            text = line(measurement, self.epochs)
        if not self.probe:  # before the line: a reader may look it up
            record(self.folder / "curves.csv", self.config, measurement)
        report(text, self.as_json, epoch=measurement.epoch, metrics=dict(measurement.metrics))
        return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    os.environ.update(thread_waiting())
    as_json = "--json" in (sys.argv if arguments is None else arguments)
    try:
        job = _job(_parser().parse_intermixed_args(arguments))
        with _lock(job.folder):
            return run(job)
    except (*BAD_INPUT, LookupError, *FAILURES) as error:
        report_error(str(error), as_json, **_place(error))
        return 2 if isinstance(error, (*BAD_INPUT, LookupError)) else 1
    except KeyboardInterrupt:
        print("train: interrupted; the same command goes on from the last checkpoint", file=sys.stderr)
        return INTERRUPTED


def _wrapped(text: str) -> str:
    """Return the text in lines of at most 80 columns, in which names and paths stay whole."""
    return textwrap.fill(text, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


class StepPrinter:
    """Prints the step of an epoch that takes long, at most every `STEP_SECONDS`."""

    def __init__(self, as_json: bool) -> None:
        self._as_json, self._printed = as_json, time.monotonic()

    def __call__(self, epoch: int, step: int, steps: int) -> None:
        """See `contract.Worker`."""
        if (now := time.monotonic()) - self._printed >= STEP_SECONDS and step < steps:
            self._printed = now
            report(f"epoch {epoch}: step {step:,} of {steps:,}", self._as_json, in_epoch=epoch, step=step, steps=steps)


class TurnListener:
    """Prints the rates of each round, then waits for the line `go` in a FIFO, which another program writes."""

    def __init__(self, answers: Path) -> None:
        self._answers = answers
        self._lines: Iterator[str] | None = None

    def __call__(self, measurement: Measurement) -> bool:
        """Return whether to go on; not so at the end of the FIFO, when the other program has closed it."""
        rates = dict(measurement.metrics)
        report("", True, epoch=measurement.epoch, metrics=rates)
        if self._lines is None:
            self._lines = self._answers.open()
        return next(self._lines, "") == "go\n"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m trainables.train", description="Train one configuration.", allow_abbrev=False)
    parser.add_argument("settings", nargs="*", metavar="NAME=VALUE", help="parameters of the trainable")
    trainables = ", ".join(TRAINABLES)
    parser.add_argument("--trainable", default=TRAINABLES[0], help=f"{trainables}, or a file such as flowers.py")
    parser.add_argument("--epochs", type=int, help="length of the training; default: the setting `epochs`, or 1")
    parser.add_argument("--probe", action="store_true", help="only measure for some seconds")
    parser.add_argument("--folder", type=Path, required=True, help="for curves.csv and the checkpoint")
    parser.add_argument("--data", default="auto", help=f"pictures: {', '.join(DATA_NAMES)}")
    parser.add_argument("--root", help="folder of the data")
    parser.add_argument("--download", action="store_true", help="download CIFAR-10 if it is missing")
    parser.add_argument("--train-samples", "--train-images", type=int, help="number of samples to train on")
    parser.add_argument("--val-samples", "--val-images", type=int, default=Data.val_images, help="for validation")
    parser.add_argument("--test", action="store_true", help="measure on the test samples at the end")
    parser.add_argument("--evaluate-every", type=int, default=1, help="epochs between two evaluations; default: 1")
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    more = f"as for search.advise: a JSON list of changed settings; waits after each round for `go` in FOLDER/{ANSWERS}"
    parser.add_argument("--turns", type=json.loads, help=more)
    return parser


def _job(options: argparse.Namespace) -> Job:
    """Check the options, locate the data and write config.json.

    Raises:
        ValueError, LookupError, InfeasibleError, DataError: one line with the mistake and the nearest name.
    """
    if options.trainable.endswith(".py"):
        options.trainable = str(Path(options.trainable).absolute())
    elif "." not in options.trainable and options.trainable not in TRAINABLES:
        raise LookupError(f'no trainable "{options.trainable}"{did_you_mean(options.trainable, TRAINABLES)}')
    if options.data not in DATA_NAMES:
        raise LookupError(f'no data "{options.data}"{did_you_mean(options.data, DATA_NAMES)}')
    for name in ("epochs", "evaluate_every", "train_samples"):
        if (count := getattr(options, name)) is not None and count < 1:
            raise ValueError(f"--{name.replace('_', '-')} {count}: at least one is needed")
    if options.val_samples < 0:
        raise ValueError(f"--val-samples {options.val_samples}: expected 0 or more")
    trainable = load_trainable(options.trainable)
    pairs = [setting.partition("=") for setting in options.settings]
    for name, equals, _ in pairs:
        if not equals:
            raise ValueError(f'"{name}": expected NAME=VALUE')
    config: dict[str, Any] = {name: parsed(value, (trainable.PARAMETERS or {}).get(name)) for name, _, value in pairs}
    if trainable.PARAMETERS is not None:
        config = checked(config, trainable.PARAMETERS)
    turns = tuple({**config, **changed} for changed in options.turns or ())
    layout = trainable.layout(turns[0] if turns else config, machine())
    data = Data(options.data, options.root, options.download, options.train_samples, options.val_samples)
    data = trainable.locate_data(data)
    description = trainable.describe_data(data)
    report(_wrapped(f"data: {description}"), options.json, data=description)
    folder, epochs = options.folder, options.epochs or config.get(EPOCHS) or 1
    if config.get(EPOCHS) not in (None, epochs):
        raise ValueError(f"--epochs {epochs}: the setting epochs={config[EPOCHS]} says otherwise; leave one out")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "config.json"
    images = {"data": data.name, "train_images": data.train_images, "val_images": data.val_images}
    about = {"trainable": options.trainable, **images, "data_found": description, **config, "epochs": epochs}
    mine = json.dumps(about, indent=1, sort_keys=True)
    # an earlier version did not write it, and had fewer settings
    earlier_version: dict[str, Any] = {"data_found": description}
    earlier_version |= {name: row.default for name, row in (trainable.PARAMETERS or {}).items()}
    differing = _differing({**earlier_version, **_read(path)}, json.loads(mine)) if path.exists() else {}
    if source_of(options.trainable) and (files := differing.pop("data_found", None)):  # perhaps the training's own
        report(_wrapped(f"other files than before: {files}"), options.json, warning=f"data_found {files}")
    if differing:  # its checkpoint is of something else
        text = "; ".join(f"{name} {values}" for name, values in differing.items())
        raise ValueError(f"--folder {folder}: another configuration or other data were trained there: {text}")
    path.write_text(mine)
    flags = (options.probe, options.test, options.evaluate_every, options.json)
    return Job(options.trainable, config, data, folder, epochs, *flags, layout, turns)


def _differing(there: Mapping[str, Any], here: Mapping[str, Any]) -> dict[str, str]:
    """Return both values of the settings and data that differ between two trainings, by name."""
    there, here = ({**about, "data_found": undated(f"{about['data_found']}")} for about in (there, here))
    names = [name for name in sorted({*there, *here}) if (name in there, there.get(name)) != (True, here.get(name))]

    def value(about: Mapping[str, Any], name: str) -> str:
        return json.dumps(about[name], ensure_ascii=False) if name in about else "not stated"

    return {name: f"{value(there, name)}, now {value(here, name)}" for name in names}


def _read(path: Path) -> dict[str, Any]:
    """Return what a file of JSON holds; nothing where it is damaged."""
    with contextlib.suppress(ValueError):
        found = json.loads(path.read_text())
        return found if isinstance(found, dict) else {}
    return {}


def _lock(folder: Path) -> AbstractContextManager[object]:
    """Lock the folder, because two processes would write the same checkpoint."""
    from filelock import FileLock, Timeout

    try:
        return FileLock(folder / "training.lock").acquire(timeout=0)
    except Timeout:
        raise ValueError(f"--folder {folder}: another process is training there") from None


def run(job: Job) -> int:
    """Train in this process, or in as many as the layout says; return the exit code."""
    if job.layout.processes == 1:
        _work(job, rank=0)
        return 0
    code, reason = run_processes(partial(_work_of_rank, job), job.layout)
    if reason is not None:
        report_error(reason, job.as_json)
    return code


def _work_of_rank(job: Job, rank: int) -> int:
    """Work as one of several ranks, and report what ends it; return the exit code."""
    try:
        _work(job, rank)
    except (*BAD_INPUT, *FAILURES) as error:
        report_error(f"rank {rank}: {error}", job.as_json, **_place(error))
        return 2 if isinstance(error, BAD_INPUT) else 1
    return 0


def _place(error: Exception) -> dict[str, int]:
    """Return the place of the configuration that cannot run among those of `--turns`."""
    return {"alternative": error.place} if isinstance(error, AlternativeError) else {}


def _work(job: Job, rank: int) -> None:
    trainable = load_trainable(job.trainable)
    resources = Resources(job.layout.cpus_per_process, job.layout.gpus_per_process)
    told: Listener = TurnListener(job.folder / ANSWERS) if job.turns else job.listener
    listener: Listener = told if rank == 0 else lambda measurement: True
    worker = LocalWorker(job.folder, job.epochs, job.data, resources, rank, job.layout.processes, listener)
    worker.on_step = StepPrinter(job.as_json) if rank == 0 else None
    worker.all_views, worker.evaluate_every = True, job.evaluate_every
    if job.turns:
        if hasattr(trainable, "turns"):
            trainable.turns(job.turns, worker)
        else:
            (config,) = job.turns
            trainable.turns_alone(config, worker)  # type: ignore[attr-defined]
        return
    (trainable.probe if job.probe else trainable.train)(job.config, worker)
    if job.test:
        metrics = trainable.test(job.config, worker)
        if rank == 0:
            (job.folder / "test.json").write_text(json.dumps(dict(metrics)))
            report(tested(metrics), job.as_json, test=dict(metrics))


if __name__ == "__main__":
    sys.exit(main())
