"""Our recorded search problem: VGG-19 on CIFAR-10 with measured times, written by `record_table.py`."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from problems import Config, Point, Row

from search.front.pareto import hypervolume

FOLDER = Path(__file__).parent / "tables"
TRAIN_IMAGES, EPOCHS = 4000, 6
SPACE: Mapping[str, tuple[Any, ...]] = {
    "batch_size": (32, 64, 128, 256, 512),
    "learning_rate": (0.003, 0.01, 0.03, 0.1, 0.3),
    "precision": ("fp32", "bf16"),
    "loader": ("memory", "workers"),
    "num_workers": (0, 1, 2),
    "strategy": ("single", "ddp"),
    "threads": (1, 2),
}
WHEN: Mapping[str, Mapping[str, list[Any]]] = {
    "num_workers": {"loader": ["workers"]},
    "threads": {"strategy": ["single"]},  # ddp is two processes of one thread
}
# Batch norm over the whole batch: accuracy then does not depend on the number of processes.
FIXED: Mapping[str, Any] = {"width": 0.125, "seed": 0, "batch_norm": "synchronised"}
ACCURACY = ("batch_size", "learning_rate", "precision")  # parameters that the accuracy depends on
RATE = ("batch_size", "precision", "loader", "num_workers", "strategy", "threads")


class Vgg19Table:
    """Recorded problem with the seconds of each part of a trial.

    Inactive parameters may be present with any value, or absent.
    """

    name = "vgg19:width-0.125"
    space: Mapping[str, tuple[Any, ...]] = {name: ("cat", list(values)) for name, values in SPACE.items()}
    when = WHEN
    affects: Mapping[str, str] = {
        name: "trained" if name not in RATE else "probed" if name not in ACCURACY else "all" for name in SPACE
    }
    max_epoch = EPOCHS

    def __init__(self, folder: Path = FOLDER, train_images: int = TRAIN_IMAGES) -> None:
        self._train_images = train_images
        self._rates = {key(row, RATE): row for row in rows(folder / "vgg19-rates.csv")}
        self._curves: dict[tuple[str, ...], list[dict[str, str]]] = {}
        for row in rows(folder / "vgg19-curves.csv"):
            self._curves.setdefault(key(row, ACCURACY), []).append(row)

    def probe(self, config: Config) -> tuple[float, float]:
        """Return the images per second, and the seconds that the probe took."""
        row = self._rates[key(active_parameters(config), RATE)]
        return float(row["images_per_second"]), float(row["probe_seconds"])

    def curve(self, config: Config) -> list[Row]:
        """Return epoch, accuracy, images per second and seconds so far: training at that rate, evaluation, setup.

        Evaluation and setup were recorded with the loader `memory`; other loaders take longer to set up.
        """
        rate, _ = self.probe(config)
        recorded = self._curves[key(active_parameters(config), ACCURACY)]
        curve, seconds = [], float(recorded[0]["setup_seconds"])
        for row in recorded:
            seconds += self._train_images / rate + float(row["evaluation_seconds"])
            curve.append((int(row["epoch"]), float(row["val_accuracy"]), rate, seconds))
        return curve

    def final(self, config: Config) -> Point:
        """Return the accuracy and the images per second of the last epoch."""
        _, accuracy, rate, _ = self.curve(config)[-1]
        return accuracy, rate

    def hv(self, points: Sequence[Point]) -> float:
        """Return the hypervolume relative to the whole table, with the reference point that `mobench.py` uses."""
        return hypervolume(_losses(points), self._reference) / self._best

    @cached_property
    def _all(self) -> np.ndarray:
        return _losses([self.final(config) for config in configs()])

    @cached_property
    def _reference(self) -> np.ndarray:
        return np.array([np.percentile(self._all[:, 0], 75), np.percentile(self._all[:, 1], 95)])

    @cached_property
    def _best(self) -> float:
        return hypervolume(self._all, self._reference)


def is_recorded(folder: Path = FOLDER) -> bool:
    """Check that the table has all rates and curves."""
    if not all((folder / f"vgg19-{kind}.csv").is_file() for kind in ("rates", "curves")):
        return False
    recorded = {key(row, RATE) for row in rows(folder / "vgg19-rates.csv")}
    return recorded >= {key(config, RATE) for config in configs()}


def configs() -> list[dict[str, Any]]:
    """Return all distinct configurations; None marks an inactive parameter."""
    product = (dict(zip(SPACE, values, strict=True)) for values in itertools.product(*SPACE.values()))
    distinct = {tuple(active_parameters(config).items()): None for config in product}
    return [dict(items) for items in distinct]


def active_parameters(config: Config) -> dict[str, Any]:
    """Return the configuration with None for each inactive parameter."""
    return {
        name: config.get(name) if all(config[o] in wanted for o, wanted in WHEN.get(name, {}).items()) else None
        for name in SPACE
    }


def key(row: Mapping[str, Any], names: Sequence[str]) -> tuple[str, ...]:
    """Return the values of these parameters as a CSV file has them."""
    return tuple("" if row[name] is None else str(row[name]) for name in names)


def rows(path: Path) -> list[dict[str, str]]:
    """Read a recorded file."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _losses(points: Sequence[Point]) -> np.ndarray:
    table = np.array(points, dtype=float).reshape(-1, 2)
    return np.column_stack([-table[:, 0], -np.log10(table[:, 1])])
