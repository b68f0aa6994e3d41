"""Trainable that replays recorded curves, or a formula's, so that a whole search runs in seconds.

Any parameter and any metric is accepted. A few settings, searched or fixed in the space file, are its own:

    table              CSV with columns `config.<name>`, `epoch` and metrics, e.g. the curves.csv of a results folder;
                       without it the curves of `closed_form`
    seconds_per_epoch  duration of an epoch (0)
    processes          processes of the trial (1)
    checkpoint_bytes   padding of the checkpoint (0)
"""

from __future__ import annotations

import csv
import itertools
import json
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from trainables.contract import (
    RENAMED_METRICS,
    Config,
    Cost,
    Data,
    DataError,
    InfeasibleError,
    Layout,
    Measurement,
    MemoryNeed,
    Metric,
    Parameter,
    Resources,
    Scalar,
    Verdict,
    Worker,
)
from trainables.setting_check import did_you_mean
from trainables.strategy_table import STRATEGIES as STRATEGIES  # of the recorded curves

PARAMETERS: Mapping[str, Parameter] | None = None
METRICS: Mapping[str, Metric] | None = None

SETTINGS = ("table", "seconds_per_epoch", "processes", "checkpoint_bytes")
TRAINED = ("val_accuracy", "accuracy", "val_loss", "train_loss")
NOT_METRICS = ("trial_id", "epoch", "seconds", "decision", "state", "reason", "kind")

Metrics = dict[str, float]
log = logging.getLogger(__name__)


def unavailable(parameter: str, value: Scalar, resources: Resources) -> str | None:
    """Refuse more processes than cores."""
    if parameter == "processes" and int(value) > resources.cpus:
        return f"needs {value} cores, there are {resources.cpus}"
    return None


def layout(config: Config, resources: Resources) -> Layout:
    """Return as many processes as the setting `processes` says, with one core each."""
    processes = int(config.get("processes", 1))
    if reason := unavailable("processes", processes, resources):
        raise InfeasibleError(f"processes {processes}: {reason}")
    return Layout(processes=processes)


def locate_data(data: Data) -> Data:
    """Return the data as generated: no pictures are read."""
    return replace(data, name="generated", root=None)


def describe_data(data: Data) -> str:
    """Return the same line for all data."""
    return "replayed curves, no pictures: nothing is trained"


def estimate(config: Config, data: Data) -> Cost:
    """Return the rate of the first epoch, and as many images as make `seconds_per_epoch`."""
    rate = curve(config, 1).get("images_per_second", 1000.0)
    seconds = float(config.get("seconds_per_epoch", 0.0))
    return Cost(samples_per_second=rate, samples_per_epoch=round(rate * seconds), checkpoint_bytes=200)


def curve(config: Config, epoch: int) -> Metrics:
    """Return the metrics of `config` after `epoch` epochs, from the table or else from the closed form.

    Raises:
        InfeasibleError: the table has no such configuration, or not that epoch of it.
        DataError: there is no such table, or it has no column for a parameter of `config`.
    """
    parameters = {name: value for name, value in config.items() if name not in SETTINGS}
    table = config.get("table")
    return recorded(Path(table), parameters, epoch) if table else closed_form(parameters, epoch)


def train(config: Config, worker: Worker, curve: Callable[[Config, int], Metrics] = curve) -> None:
    """Report the curve of `config`, epoch by epoch; go on from a checkpoint as a real trainable does."""
    last = _load_checkpoint(worker.folder)
    if last is not None and not worker.report(last):
        return
    for epoch in range(last.epoch + 1 if last else 1, worker.epochs + 1):
        metrics = curve(config, epoch)
        time.sleep(float(config.get("seconds_per_epoch", 0.0)))
        measurement = Measurement(epoch, metrics)
        if worker.rank == 0:
            _save_checkpoint(worker.folder, measurement, int(config.get("checkpoint_bytes", 0)))
        if not worker.report(measurement):
            return


def probe(config: Config, worker: Worker) -> None:
    """Report the first epoch without the metrics that take training."""
    worker.report(Measurement(0, {name: x for name, x in curve(config, 1).items() if name not in TRAINED}))


def turns(configs: Sequence[Config], worker: Worker) -> None:
    """Report the rates of the first epoch, round after round, until a report returns False."""
    rates = {f"rate_{i}": curve(config, 1)["images_per_second"] for i, config in enumerate(configs)}
    for number in itertools.count(1):
        time.sleep(0.01)
        if not worker.report(Measurement(number, rates)):
            return


def explain(config: Config, metrics: Mapping[str, float], resources: Resources) -> Verdict | None:
    """Return None: no stage was measured."""
    return None


def memory(config: Config, data: Data, resources: Resources) -> MemoryNeed | None:
    """Return None: a replay needs no memory worth predicting."""
    return None


def largest_batch(config: Config, data: Data, resources: Resources, available: int) -> int | None:
    """Return None: memory limits no batch."""
    return None


def test(config: Config, worker: Worker) -> Mapping[str, float]:
    """Return a little less than the validation accuracy."""
    last = _load_checkpoint(worker.folder)
    accuracy = last.metrics.get("val_accuracy", last.metrics.get("accuracy")) if last else None
    return {} if accuracy is None else {"test_accuracy": 0.99 * accuracy}


def closed_form(parameters: Config, epoch: int) -> Metrics:
    """Return a point of curves whose trade-off between accuracy and rate is known exactly.

    Rate: 2000 b / (b + 256) images/s for batch size b. Accuracy: saturates with the epoch at 0.94, less 0.01 for each
    doubling of b over 64, less 0.1 per squared decade between the learning rate and its optimum, 0.1 b / 128. Any
    other number x buys rate, times (1 + u), and costs accuracy, 0.1 u^2, with u = |x| / (1 + |x|).
    """
    batch_size = max(1.0, float(parameters.get("batch_size", 128)))
    learning_rate = max(1e-12, float(parameters.get("learning_rate", 0.1 * batch_size / 128)))
    decades = math.log10(learning_rate / (0.1 * batch_size / 128))
    accuracy = 0.94 - 0.01 * max(0.0, math.log2(batch_size / 64)) - 0.1 * decades**2
    rate = 2000 * batch_size / (batch_size + 256)
    for name, value in parameters.items():
        if name not in ("batch_size", "learning_rate") and type(value) in (int, float):
            share = abs(value) / (1 + abs(value))
            rate *= 1 + share
            accuracy -= 0.1 * share**2
    reached = 0.1 + max(0.0, accuracy - 0.1) * (1 - math.exp(-epoch / 3))
    return {"val_accuracy": reached, "images_per_second": rate, "peak_memory_fraction": min(1.0, batch_size / 4096)}


def recorded(table: Path, parameters: Config, epoch: int) -> Metrics:
    """Return the metrics of the table's first row with these parameters and this epoch, without empty cells.

    Columns that `parameters` does not have are not compared.
    """
    try:
        columns, rows = _read_table(table, table.stat().st_mtime_ns)
    except OSError as error:
        raise DataError(f"{table}: {error.strerror}; `table` is the path of a CSV file with recorded curves") from error
    for name in parameters:
        if f"config.{name}" not in columns:
            settings = [column.removeprefix("config.") for column in columns if column.startswith("config.")]
            raise DataError(f'{table}: no column "config.{name}"{did_you_mean(name, settings)}')
    same = [row for row in rows if all(_equal(row[f"config.{name}"], value) for name, value in parameters.items())]
    described = ", ".join(f"{name} {value}" for name, value in parameters.items())
    if not same:
        raise InfeasibleError(f"not in {table.name}: {described}")
    for row in same:
        if int(row["epoch"]) == epoch:
            metrics = (k for k in row if k not in NOT_METRICS and not k.startswith("config."))
            return {name: float(row[name]) for name in metrics if _is_number(row[name])}
    raise InfeasibleError(f"no epoch {epoch} in {table.name}: {described}")


@lru_cache(maxsize=4)
def _read_table(table: Path, mtime_ns: int) -> tuple[list[str], list[dict[str, str]]]:
    """Read column names and rows, once per version of the file."""
    with table.open(newline="") as file:
        reader = csv.DictReader(file)
        reader.fieldnames = [RENAMED_METRICS.get(name, name) for name in reader.fieldnames or ()]
        rows = list(reader)
        columns = list(reader.fieldnames)
    if "epoch" not in columns:
        raise DataError(f'{table}: no column "epoch"; recorded curves have config.<name>, epoch and metrics')
    return columns, rows


def _is_number(cell: str | None) -> bool:
    try:
        float(cell or "")
    except ValueError:
        return False
    return True


def _equal(cell: str, value: Any) -> bool:
    """Compare a cell with a value; an empty cell stands for an inactive parameter."""
    if value is None or cell == "":
        return value is None and cell == ""
    if type(value) in (int, float) and _is_number(cell):
        return math.isclose(float(cell), value, rel_tol=1e-9)
    return cell.lower() == str(value).lower()


def _save_checkpoint(folder: Path, measurement: Measurement, filling: int) -> None:
    unfinished = folder / "checkpoint.json.part"
    text = json.dumps({"epoch": measurement.epoch, "metrics": dict(measurement.metrics), "filling": "x" * filling})
    try:
        unfinished.write_text(text)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        what = f"{error.strerror}: {len(text):,} bytes are needed"
        raise OSError(error.errno, what, str(folder / "checkpoint.json")) from error
    unfinished.replace(folder / "checkpoint.json")


def _load_checkpoint(folder: Path) -> Measurement | None:
    path = folder / "checkpoint.json"
    try:
        checkpoint = json.loads(path.read_text())
        return Measurement(checkpoint["epoch"], checkpoint["metrics"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        log.warning("%s cannot be read: the trial begins anew", path)
        return None
