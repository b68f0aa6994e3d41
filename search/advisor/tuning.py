"""The settings that bear on the rate alone: which are the fastest, and whether another probe would find faster ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from search.advisor.acquisition import expected_excess
from search.advisor.belief import Belief
from search.advisor.encoding import INACTIVE, Encoding, Rows
from trainables.contract import Scalar

Array = NDArray[np.float64]

MOST_VARIANTS, MOST_LOOKED_UP, FEWEST_VARIANTS = 256, 4096, 8  # of one kind; of all together; of one among many
WORTH_A_PROBE, CERTAIN = 0.01, 0.05  # parts of a rate: expected to be gained by a probe; not worth one


class Tuner:
    """Knows what was probed; `rate` is the belief of the rate's loss, by its logarithm.

    `free_names` are the parameters that bear on the rate alone; `allowed` gives the probability that rows run here and
    keep the constraints.
    """

    def __init__(
        self, encoding: Encoding, rate: Belief, free_names: set[str], allowed: Callable[[Rows], Array]
    ) -> None:
        self._encoding, self._rate, self._free_names, self._allowed = encoding, rate, free_names, allowed
        self._free = encoding.columns(free_names)
        self._shared = np.setdiff1d(rate.columns, self._free)
        self._asked: set[bytes] = set()  # settings that were probed, whatever became of it
        self._measured: dict[bytes, Rows] = {}
        self._winners: dict[bytes, tuple[float, bytes]] = {}  # the least loss of each kind, and the free settings there
        self._fastest: dict[bytes, Rows] = {}  # by what else the rate depends on

    def ask(self, row: Rows) -> None:
        """It is being probed, and never will be again."""
        self._asked.add(self._key(row))

    def learn(self, row: Rows, loss: float) -> None:
        """Its rate was measured, by a probe or in training."""
        self._measured[self._key(row)] = row
        kind, free = row[self._shared].tobytes(), row[self._free].tobytes()
        self._winners[kind] = min(self._winners.get(kind, (loss, free)), (loss, free))
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
            probe = self._worth_probing(rows, best, gains, untried & (allowed >= 0.5))
            return self._with_free(config, rows[best if probe is None else probe]), probe is not None
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

    def _worth_probing(self, rows: Rows, best: int, gains: Array, possible: NDArray[np.bool_]) -> int | None:
        """Which row; None: none. `gains` are expected over the `best` that is known.

        One setting is changed at a time while that pays: then a difference has one cause. In the end what is the
        fastest of most other kinds is tried in any case, as settings that hinder each other mislead.
        """
        for promised in (gains * (self._differences(rows, rows[best]) == 1), gains):
            if promised.max() > WORTH_A_PROBE:
                return int(np.argmax(promised))
        wins = Counter(free for _, free in self._winners.values())
        champions = {free for free, count in wins.items() if count == max(wins.values())}
        left = [i for i in np.flatnonzero(possible) if rows[i, self._free].tobytes() in champions]
        return int(left[0]) if left else None

    def _differences(self, rows: Rows, row: Rows) -> NDArray[np.int_]:
        """In how many of the free settings, those apart that are out of play in either."""
        free, other = rows[:, self._free], row[self._free]
        return np.asarray(((free != other) & (free != INACTIVE) & (other != INACTIVE)).sum(axis=1))

    def _key(self, row: Rows) -> bytes:
        return bytes(row[self._rate.columns].tobytes())

    def _with_free(self, config: Mapping[str, Scalar], row: Rows) -> dict[str, Scalar]:
        """The configuration with the free settings of `row`; the others to the last digit."""
        return {**self._encoding.config(row), **{n: v for n, v in config.items() if n not in self._free_names}}


def _lowest(means: Array, allowed: Array, among: NDArray[np.bool_]) -> int:
    """Index of the lowest mean of those that are likely to be allowed; where none is, of the likeliest one."""
    likely = among & (allowed >= 0.5)
    return int(np.argmin(np.where(likely, means, np.inf)) if likely.any() else np.argmax(np.where(among, allowed, -1)))
