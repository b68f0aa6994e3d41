"""Configurations as rows of numbers, for a model: steps of a ladder, points of a range, names. NumPy."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from search.space.space import Choice, Range, Space
from trainables.contract import Scalar

Rows = NDArray[np.float64]  # (num_configs, num_parameters): a choice's index, a range's position from 0 to 1
Features = NDArray[np.float64]  # (num_configs, num_features)
INACTIVE = -1.0


class Encoding:
    """The space's parameters as columns. A parameter that is not active is INACTIVE, so equal trials are equal rows.

    Features are what distances are taken in: a ladder or a range is one column from 0 to 1; names are a column each,
    and one of their place in the file, as the order in which people list names often means something.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self._parameters = list(space.parameters.items())
        self._place = {name: i for i, (name, _) in enumerate(self._parameters)}
        scale_of = list[int]()  # (num_features,): which length scale measures a feature
        for _, parameter in self._parameters:
            first = scale_of[-1] + 1 if scale_of else 0
            scale_of += [first] * _num_names(parameter)
            scale_of += [first + (_num_names(parameter) > 0)] * _has_place(parameter)
        self._scale_of = np.array(scale_of, dtype=int)
        widths = [_num_names(p) + _has_place(p) for _, p in self._parameters]
        self._column_of = np.repeat(np.arange(len(self._parameters)), widths)

    def columns(self, names: Collection[str]) -> NDArray[np.int_]:
        """Which columns of a row these parameters are."""
        return np.array([i for i, (name, _) in enumerate(self._parameters) if name in names], dtype=int)

    def scale_of(self, columns: NDArray[np.int_]) -> NDArray[np.int_]:
        """Which length scale measures each of the features of these columns, counted from 0."""
        scales = self._scale_of[np.isin(self._column_of, columns)]
        return np.unique(scales, return_inverse=True)[1] if len(scales) else np.zeros(1, dtype=int)

    def choices(self, row: Rows, columns: NDArray[np.int_], most: int, rng: np.random.Generator) -> Rows:
        """All that the row can be with other values in these columns; of too many, and of ranges, `most` at random.

        Some of them may be equal, where a value brings others out of play.
        """
        given = [p for i in columns if isinstance(p := self._parameters[i][1], Choice)]
        if len(given) == len(columns) and math.prod(len(p.values) for p in given) <= most:
            grid = np.array(list(itertools.product(*(range(len(p.values)) for p in given))), dtype=float)
            rows = np.repeat(row[None], len(grid), axis=0)
            rows[:, columns] = grid
        else:
            rows = np.repeat(row[None], most, axis=0)
            rows[:, columns] = self.random(rng, most)[:, columns]
        return self._deactivated(rows, rng)

    def rows(self, configs: Iterable[Mapping[str, Scalar]]) -> Rows:
        """Rows of configurations of the space."""
        table = [[_position(p, c[name]) if name in c else INACTIVE for name, p in self._parameters] for c in configs]
        return np.array(table, dtype=float).reshape(len(table), len(self._parameters))

    def config(self, row: Rows) -> dict[str, Scalar]:
        """The configuration of one row, without what is fixed."""
        return {n: _value(p, x) for (n, p), x in zip(self._parameters, row, strict=True) if x != INACTIVE}

    def random(self, rng: np.random.Generator, count: int) -> Rows:
        """Rows drawn evenly."""
        columns = [_drawn(parameter, count, rng) for _, parameter in self._parameters]
        return self._deactivated(np.stack(columns, axis=1), rng)

    def mutated(self, rng: np.random.Generator, rows: Rows, step: float) -> Rows:
        """The same rows with one or a few of their parameters changed; in a range by about `step` of it."""
        rows = rows.copy()
        count, width = rows.shape
        changed = rng.random((count, width)) < 1.5 / width
        changed[np.arange(count), rng.integers(width, size=count)] = True
        for column, (_, parameter) in enumerate(self._parameters):
            hit = changed[:, column] & (rows[:, column] != INACTIVE)
            rows[hit, column] = _moved(parameter, rows[hit, column], step, rng)
        return self._deactivated(rows, rng)

    def features(self, rows: Rows, only: NDArray[np.int_]) -> Features:
        """What a model compares, of the parameters in these columns alone."""
        columns: list[NDArray[np.float64]] = []
        for i in only:
            parameter, x = self._parameters[i][1], rows[:, i]
            # half: two different names are 1 apart, squared
            columns += [np.where(x == k, 0.5**0.5, 0.0) for k in range(_num_names(parameter))]
            if _has_place(parameter):
                last = 1 if isinstance(parameter, Range) else max(1, len(parameter.values) - 1)
                columns.append(np.where(x != INACTIVE, x / last, 0.5))
        return np.stack(columns, axis=1) if columns else np.zeros((len(rows), 1))

    def _deactivated(self, rows: Rows, rng: np.random.Generator) -> Rows:
        """With INACTIVE where a parameter is out of play, and some value where a change brought it into play."""
        for column, (_, parameter) in enumerate(self._parameters):
            active = np.ones(len(rows), dtype=bool)
            for other, wanted in parameter.when.items():
                active &= self._is_one_of(rows, other, wanted)
            rows[~active, column] = INACTIVE
            new = active & (rows[:, column] == INACTIVE)
            rows[new, column] = _drawn(parameter, int(new.sum()), rng)
        return rows

    def _is_one_of(self, rows: Rows, other: str, wanted: Iterable[Scalar]) -> NDArray[np.bool_]:
        if other not in self._place:
            return np.full(len(rows), self._space.fixed.get(other) in tuple(wanted))
        parameter = self._parameters[self._place[other]][1]
        positions = [_position(parameter, value) for value in wanted if parameter.takes(value)]
        return np.isin(rows[:, self._place[other]], positions)


def _num_names(parameter: Choice | Range) -> int:
    """How many of its values have a feature each."""
    return 0 if isinstance(parameter, Range) or parameter.is_ladder else len(parameter.values)


def _has_place(parameter: Choice | Range) -> bool:
    """Whether a feature says where in its range or list a value is; of two names there is nothing more to say."""
    return _num_names(parameter) == 0 or _num_names(parameter) >= 3


def _position(parameter: Choice | Range, value: Scalar) -> float:
    if isinstance(parameter, Choice):
        return float(parameter.options.index(value))
    return float(_place(parameter, np.array(value, dtype=float)))


def _value(parameter: Choice | Range, position: float) -> Scalar:
    if isinstance(parameter, Choice):
        return parameter.options[round(position)]
    return parameter.at(float(position))


def _place(parameter: Range, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Where in the range values are, 0 to 1."""
    low, high = parameter.min, parameter.max
    if low == high:
        return values * 0.0
    return np.asarray(np.log(values / low) / np.log(high / low) if parameter.log else (values - low) / (high - low))


def _drawn(parameter: Choice | Range, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Positions drawn evenly."""
    if isinstance(parameter, Choice):
        return rng.integers(len(parameter.values), size=count).astype(float)
    return _snapped(parameter, rng.random(count))


def _snapped(parameter: Range, places: NDArray[np.float64]) -> NDArray[np.float64]:
    """Places of values that the range has: whole numbers, where it is over those."""
    return _place(parameter, np.array([parameter.at(place) for place in places])) if parameter.type == "int" else places


def _moved(
    parameter: Choice | Range, positions: NDArray[np.float64], step: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    count = len(positions)
    if isinstance(parameter, Range):
        width = step * np.exp(rng.normal(size=count))
        return _snapped(parameter, np.clip(positions + width * rng.normal(size=count), 0.0, 1.0))
    last = len(parameter.values) - 1
    near = np.clip(positions + rng.choice([-2, -1, 1, 2], p=[0.15, 0.35, 0.35, 0.15], size=count), 0, last)
    if parameter.is_ladder:
        return np.asarray(near, dtype=float)
    far = rng.integers(last + 1, size=count)
    return np.where(rng.random(count) < 0.5, near, far).astype(float)
