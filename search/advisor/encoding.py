"""Configurations as rows of numbers for a model: indices of choices, positions in ranges. NumPy."""

import itertools
import math
from collections.abc import Collection, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from search.space.parameters import Choice, Range
from search.space.space import Space
from trainables.contract import Scalar

Rows = NDArray[np.float64]  # (num_configs, num_parameters): a choice's index, a range's position from 0 to 1
Array = NDArray[np.float64]
INACTIVE = -1.0
LIKELY_SHARE = 0.5  # of random rows: drawn from the values that the user calls likely


class Encoding:
    """Parameters of the space as columns. An inactive parameter is INACTIVE, so equal trials are equal rows.

    Distances are measured between features: a range or a list of numbers is one column from 0 to 1. Names have one
    column each, and from three names on one more for the place in the list, whose order is often meaningful. The more
    names a list has, the more alike they are expected to be, because few of them are tried.
    """

    def __init__(self, space: Space) -> None:
        self._fixed = space.fixed
        self._by_name, self._parameters = space.parameters, list(space.parameters.values())
        # (num_parameters,): one-hot features of its names
        self._num_names = [0 if isinstance(p, Range) or p.is_ordinal else len(p.values) for p in self._parameters]
        self._has_position = [num_names not in (1, 2) for num_names in self._num_names]

    def columns(self, names: Collection[str]) -> NDArray[np.int_]:
        """Return the indices of these parameters' columns in a row."""
        return np.flatnonzero([name in names for name in self._by_name])

    def scale_of(self, columns: NDArray[np.int_]) -> NDArray[np.int_]:
        """Return the index of the length scale of each feature of these columns, counted from 0."""
        scale_of = list[int]()
        for i in columns:
            first = scale_of[-1] + 1 if scale_of else 0
            scale_of += [first] * self._num_names[i] + [first + (self._num_names[i] > 0)] * self._has_position[i]
        return np.array(scale_of or [0])

    def choices(self, row: Rows, columns: NDArray[np.int_], limit: int, rng: np.random.Generator) -> Rows:
        """Return the row with all other values in these columns; of too many, and of ranges, `limit` at random.

        Some rows may be equal, where a value deactivates other parameters.
        """
        sizes = [len(p.values) if isinstance(p := self._parameters[i], Choice) else limit + 1 for i in columns]
        if math.prod(sizes) <= limit:
            values = np.array(list(itertools.product(*map(range, sizes))), dtype=float)
        else:
            values = self.random(rng, limit)[:, columns]
        rows = np.repeat(row[None], len(values), axis=0)
        rows[:, columns] = values
        return self._apply_conditions(rows, rng)

    def rows(self, configs: Iterable[Mapping[str, Scalar]]) -> Rows:
        """Return rows of configurations of the space."""
        every = self._by_name.items()
        table = [[_position(p, c[name]) if name in c else INACTIVE for name, p in every] for c in configs]
        return np.array(table, dtype=float).reshape(len(table), len(self._parameters))

    def config(self, row: Rows) -> dict[str, Scalar]:
        """Return the configuration of one row, without the fixed settings."""
        return {
            name: p.value_at(float(x)) if isinstance(p, Range) else p.ordered_values[round(x)]
            for (name, p), x in zip(self._by_name.items(), row, strict=True)
            if x != INACTIVE
        }

    def random(self, rng: np.random.Generator, count: int) -> Rows:
        """Draw rows uniformly, and some of them from the values that the user calls likely."""
        columns = [_draw(parameter, count, rng) for parameter in self._parameters]
        if any(parameter.likely for parameter in self._parameters):
            inside = rng.random(count) < LIKELY_SHARE
            for column, parameter in zip(columns, self._parameters, strict=True):
                column[inside] = _draw(parameter, int(inside.sum()), rng, likely=True)
        return self._apply_conditions(np.stack(columns, axis=1), rng)

    def neighbours(self, rng: np.random.Generator, rows: Rows, step: float) -> Rows:
        """Return rows with one active parameter changed: of a range by a step, a quarter of one, or to an end."""
        changed = [rows[:0]]
        for column, parameter in enumerate(self._parameters):
            active = rows[rows[:, column] != INACTIVE]
            if isinstance(parameter, Range):
                moves = np.array([-1.0, -step, -step / 4, step / 4, step, 1.0])
                positions = _round(parameter, np.clip(active[:, [column]] + moves, 0.0, 1.0))
            else:
                positions = np.tile(np.arange(len(parameter.values), dtype=float), (len(active), 1))
            moved = np.repeat(active, positions.shape[1], axis=0)
            moved[:, column] = positions.ravel()
            changed.append(moved[positions.ravel() != np.repeat(active[:, column], positions.shape[1])])
        return self._apply_conditions(np.vstack(changed), rng)

    def features(self, rows: Rows, only: NDArray[np.int_]) -> Array:
        """Return the features of the parameters in the columns `only`, shape (num_configs, num_features)."""
        columns: list[Array] = []
        for i in only:
            parameter, x = self._parameters[i], rows[:, i]
            # n names are a squared distance of (2 / n)**0.5 apart: of many, few are tried
            columns += [np.where(x == k, (2 * self._num_names[i]) ** -0.25, 0.0) for k in range(self._num_names[i])]
            if self._has_position[i]:
                last = 1 if isinstance(parameter, Range) else max(1, len(parameter.values) - 1)
                columns.append(np.where(x != INACTIVE, x / last, 0.5))
        return np.stack(columns, axis=1) if columns else np.zeros((len(rows), 1))

    def _apply_conditions(self, rows: Rows, rng: np.random.Generator) -> Rows:
        """Deactivate parameters whose condition does not hold; draw values for those that became active."""
        for column, parameter in enumerate(self._parameters):
            active = np.ones(len(rows), dtype=bool)
            for other, wanted in parameter.when.items():
                if searched := self._by_name.get(other):
                    positions = [_position(searched, value) for value in wanted if searched.contains(value)]
                    active &= np.isin(rows[:, self.columns([other])[0]], positions)
                else:
                    active &= self._fixed.get(other) in wanted
            rows[~active, column] = INACTIVE
            new = active & (rows[:, column] == INACTIVE)
            rows[new, column] = _draw(parameter, int(new.sum()), rng)
        return rows


def _position(parameter: Choice | Range, value: Scalar) -> float:
    if isinstance(parameter, Choice):
        return float(parameter.ordered_values.index(value))
    return float(_fraction(parameter, np.array(value, dtype=float)))


def _fraction(parameter: Range, values: Array) -> Array:
    """Return the positions of values in the range, 0 to 1."""
    low, high = parameter.min, parameter.max
    return np.asarray(np.log(values / low) / np.log(high / low) if parameter.log else (values - low) / (high - low))


def _draw(parameter: Choice | Range, count: int, rng: np.random.Generator, likely: bool = False) -> Array:
    """Draw positions uniformly; `likely`: of the values that the user calls so."""
    said = parameter.likely if likely else None
    if isinstance(parameter, Choice):
        positions = [_position(parameter, value) for value in said or () if parameter.contains(value)]
        return rng.choice(positions or np.arange(len(parameter.values)), size=count).astype(float)
    low, high = _fraction(parameter, np.array(said or (parameter.min, parameter.max), dtype=float))
    return _round(parameter, low + (high - low) * rng.random(count))


def _round(parameter: Range, positions: Array) -> Array:
    if parameter.type == "float":
        return positions
    values = [parameter.value_at(position) for position in positions.ravel()]
    return _fraction(parameter, np.array(values).reshape(positions.shape))
