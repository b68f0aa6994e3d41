"""The settings that bear on the rate alone: which are the fastest, and whether another probe would find faster ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from search.acquisition import expected_excess
from search.belief import Belief
from search.encoding import Encoding, Rows
from trainables.contract import Scalar

Array = NDArray[np.float64]

MOST_VARIANTS, MOST_LOOKED_UP, FEWEST_VARIANTS = 256, 4096, 8  # of one kind; of all together; of one among many
WORTH_A_PROBE, CERTAIN = 0.03, 0.05  # parts of a rate: expected to be gained by a probe; not worth one


class Tuner:
    """Knows what was probed; `rate` is the belief of the rate's loss, by its logarithm.

    `free` are the columns that bear on the rate alone; `allowed` gives the probability that rows run here and keep the
    constraints.
    """

    def __init__(
        self,
        encoding: Encoding,
        rate: Belief,
        free: NDArray[np.int_],
        allowed: Callable[[Rows], Array],
        free_names: set[str],
    ) -> None:
        self._encoding, self._rate, self._free, self._allowed = encoding, rate, free, allowed
        self._free_names = free_names
        self._shared = np.setdiff1d(rate.columns, free)
        self._asked: set[bytes] = set()  # settings that were probed, whatever became of it
        self._measured: dict[bytes, Rows] = {}
        self._fastest: dict[bytes, Rows] = {}  # by what else the rate depends on

    def ask(self, row: Rows) -> None:
        """It is being probed, and never will be again."""
        self._asked.add(self._key(row))

    def learn(self, row: Rows) -> None:
        """Its rate was measured, by a probe or in training."""
        self._measured[self._key(row)] = row
        self.forget()

    def forget(self) -> None:
        """What was concluded from less than is known now."""
        self._fastest.clear()

    def tuned(self, config: Mapping[str, Scalar], rng: np.random.Generator) -> tuple[dict[str, Scalar], bool]:
        """The same with the free settings as they promise most; whether to probe that first.

        A probe pays while one that was never asked for is expected to find a rate that is better by WORTH_A_PROBE, or
        while nothing is known of settings of this kind.
        """
        (row,) = self._encoding.rows([config])
        rows = self._variants(row, rng)
        if len(rows) == 1:
            return dict(config), False
        allowed, keys = self._allowed(rows), [self._key(r) for r in rows]
        known = np.array([key in self._measured for key in keys])
        untried = ~known & np.array([key not in self._asked for key in keys])
        if not len(self._rate):
            promise = np.where(untried, 1.0, 0.0) + 0.5 * allowed + 1e-6 * rng.random(len(rows))
            return self._with_free(config, rows[int(np.argmax(promise))]), bool(untried.any())
        means, deviations = self._rate.predict(rows)
        if known.any():
            best = _lowest(means, allowed, known)
            gains = untried * expected_excess(means[best], means, deviations) * allowed
            probe = bool(gains.max() > WORTH_A_PROBE)
            return self._with_free(config, rows[int(np.argmax(gains)) if probe else best]), probe
        best = _lowest(means, allowed, untried if untried.any() else ~known)
        return self._with_free(config, rows[best]), bool(untried[best] and deviations[best] > CERTAIN)

    def fastest(self, rows: Rows) -> Rows:
        """The same with the free settings as they are believed to be the fastest."""
        if not len(self._rate):
            return rows
        kinds = {row[self._shared].tobytes(): row for row in rows}
        self._look_up({key: row for key, row in kinds.items() if key not in self._fastest})
        rows = rows.copy()
        for row in rows:
            row[self._free] = self._fastest[row[self._shared].tobytes()]
        return rows

    def _look_up(self, kinds: Mapping[bytes, Rows]) -> None:
        """Note the fastest of each kind of setting; the more kinds, the fewer variants of each are looked at."""
        if not kinds:
            return
        rng, most = np.random.default_rng(0), max(FEWEST_VARIANTS, MOST_LOOKED_UP // len(kinds))
        variants = [self._variants(row, rng, min(most, MOST_VARIANTS)) for row in kinds.values()]
        together, ends = np.vstack(variants), np.cumsum([len(rows) for rows in variants])[:-1]
        means = np.split(self._rate.predict(together)[0], ends)
        allowed = np.split(self._allowed(together), ends)
        for key, rows, mean, odds in zip(kinds, variants, means, allowed, strict=True):
            self._fastest[key] = rows[_lowest(mean, odds, np.ones(len(rows), dtype=bool))][self._free]

    def _variants(self, row: Rows, rng: np.random.Generator, most: int = MOST_VARIANTS) -> Rows:
        """What differs in the free settings; of too many, what was measured is among them."""
        rows = [row[None], self._encoding.choices(row, self._free, most, rng)]
        for other in self._measured.values():
            if (other[self._shared] == row[self._shared]).all():
                same = row.copy()
                same[self._free] = other[self._free]
                rows.append(same[None])
        return np.asarray(np.unique(np.vstack(rows), axis=0))

    def _key(self, row: Rows) -> bytes:
        return bytes(row[self._rate.columns].tobytes())

    def _with_free(self, config: Mapping[str, Scalar], row: Rows) -> dict[str, Scalar]:
        """The configuration with the free settings of `row`; the others to the last digit."""
        return {**self._encoding.config(row), **{n: v for n, v in config.items() if n not in self._free_names}}


def _lowest(means: Array, allowed: Array, among: NDArray[np.bool_]) -> int:
    """Index of the lowest mean of those that are likely to be allowed; where none is, of the likeliest one."""
    likely = among & (allowed >= 0.5)
    return int(np.argmin(np.where(likely, means, np.inf)) if likely.any() else np.argmax(np.where(among, allowed, -1)))
