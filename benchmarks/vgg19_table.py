"""A search problem of our own: VGG19 on CIFAR-10 as `record_table.py` has recorded it, with the seconds it all took."""

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
# Batch norm over the whole batch: then two processes learn what one does, and accuracy does not depend on the strategy.
FIXED: Mapping[str, Any] = {"width": 0.125, "seed": 0, "batch_norm": "synchronised"}
ACCURACY = ("batch_size", "learning_rate", "precision")  # what the accuracy depends on
RATE = ("batch_size", "precision", "loader", "num_workers", "strategy", "threads")


class Vgg19Table:
    """The recorded problem, as `problems.Problem` says, and what each part of a trial takes.

    Parameters that are not in play may be there or not, whatever their value.
    """

    name = "vgg19:width-0.125"
    space: Mapping[str, tuple[Any, ...]] = {name: ("cat", list(values)) for name, values in SPACE.items()}
    when = WHEN
    max_epoch = EPOCHS

    def __init__(self, folder: Path = FOLDER, train_images: int = TRAIN_IMAGES) -> None:
        self._train_images = train_images
        self._rates = {key(row, RATE): row for row in rows(folder / "vgg19-rates.csv")}
        self._curves: dict[tuple[str, ...], list[dict[str, str]]] = {}
        for row in rows(folder / "vgg19-curves.csv"):
            self._curves.setdefault(key(row, ACCURACY), []).append(row)

    def probe(self, config: Config) -> tuple[float, float]:
        """Images per second, and the seconds it took to learn that."""
        row = self._rates[key(in_play(config), RATE)]
        return float(row["images_per_second"]), float(row["probe_seconds"])

    def curve(self, config: Config) -> list[Row]:
        """Epoch, accuracy, images per second, seconds so far: training at that rate, evaluation and setup as recorded.

        They were recorded with the loader `memory`; that others take longer to set up is left out.
        """
        rate, _ = self.probe(config)
        recorded = self._curves[key(in_play(config), ACCURACY)]
        curve, seconds = [], float(recorded[0]["setup_seconds"])
        for row in recorded:
            seconds += self._train_images / rate + float(row["evaluation_seconds"])
            curve.append((int(row["epoch"]), float(row["val_accuracy"]), rate, seconds))
        return curve

    def final(self, config: Config) -> Point:
        """Accuracy and images per second in the end."""
        _, accuracy, rate, _ = self.curve(config)[-1]
        return accuracy, rate

    def hv(self, points: Sequence[Point]) -> float:
        """Over that of the front of the whole table; the reference point is where `mobench.py` takes it for tables."""
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
    """Whether the whole table is there."""
    if not all((folder / f"vgg19-{kind}.csv").is_file() for kind in ("rates", "curves")):
        return False
    recorded = {key(row, RATE) for row in rows(folder / "vgg19-rates.csv")}
    return recorded >= {key(config, RATE) for config in configs()}


def configs() -> list[dict[str, Any]]:
    """All that differ; None: not in play."""
    product = (dict(zip(SPACE, values, strict=True)) for values in itertools.product(*SPACE.values()))
    distinct = {tuple(in_play(config).items()): None for config in product}
    return [dict(items) for items in distinct]


def in_play(config: Config) -> dict[str, Any]:
    """With None where a parameter has no part in it."""
    return {
        name: config.get(name) if all(config[o] in wanted for o, wanted in WHEN.get(name, {}).items()) else None
        for name in SPACE
    }


def key(row: Mapping[str, Any], names: Sequence[str]) -> tuple[str, ...]:
    """As a CSV file has it."""
    return tuple("" if row[name] is None else str(row[name]) for name in names)


def rows(path: Path) -> list[dict[str, str]]:
    """Of a recorded file."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _losses(points: Sequence[Point]) -> np.ndarray:
    table = np.array(points, dtype=float).reshape(-1, 2)
    return np.column_stack([-table[:, 0], -np.log10(table[:, 1])])
