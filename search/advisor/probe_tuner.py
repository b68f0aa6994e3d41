"""Tuning by probes: the fastest values of settings that affect the rate alone, and whether another probe pays."""

from collections.abc import Callable, Mapping
from statistics import multimode

import numpy as np
from numpy.typing import NDArray

from search.advisor.acquisition import expected_excess
from search.advisor.encoding import INACTIVE, Array, Encoding, Rows
from search.advisor.metric_model import MetricModel
from trainables.contract import Scalar

# A group is the set of configurations that share all settings but the tuned ones.
MAX_VARIANTS, MAX_LOOKED_UP, MIN_VARIANTS = 256, 4096, 8  # per group; of all groups together; per group among many
FEWEST_VALUES = 4  # measured of a setting with as many, before the model may say that it has no effect
MIN_PROBE_GAIN, CERTAIN = 0.03, 0.05  # relative to the rate: smallest gain worth a probe; deviation that needs none


class ProbeTuner:
    """Tuner of the settings that affect the rate alone; `rate` models the rate's loss, by its logarithm.

    `tuned_names` are the parameters to tune, perhaps none; `feasibility` gives the probability that rows run here and
    satisfy the constraints. `most`: probes of the whole search.
    """

    def __init__(
        self,
        encoding: Encoding,
        rate: MetricModel,
        tuned_names: set[str],
        feasibility: Callable[[Rows], Array],
        most: float,
    ) -> None:
        self._encoding, self.rate, self._tuned_names, self._feasibility = encoding, rate, tuned_names, feasibility
        self._most, self._tuned = most, encoding.columns(tuned_names)
        self._shared = np.setdiff1d(rate.columns, self._tuned)
        self._probed: set[bytes] = set()  # started probes, whatever their result
        self._measured: dict[bytes, Rows] = {}
        self._winners: dict[bytes, tuple[float, bytes]] = {}  # lowest loss of each group, and its tuned settings
        self._fastest: dict[bytes, Rows] = {}  # predicted tuned settings, by group

    def start(self, row: Rows) -> None:
        """Record that a probe has started: the same settings are never probed twice."""
        self._probed.add(self._key(row))

    def learn(self, row: Rows, loss: float) -> None:
        """Record the measured rate of a probe or a training."""
        self._measured[self._key(row)] = row
        group, tuned = row[self._shared].tobytes(), row[self._tuned].tobytes()
        self._winners[group] = min(self._winners.get(group, (loss, tuned)), (loss, tuned))

    def invalidate(self) -> None:
        """Discard the predictions, because there is new data."""
        self._fastest.clear()

    def tune(self, config: Mapping[str, Scalar], rng: np.random.Generator) -> tuple[dict[str, Scalar], bool]:
        """Set the tuned settings of a configuration; the flag says whether to probe it before training.

        A probe pays while a setting not probed yet has an expected improvement above MIN_PROBE_GAIN, or while nothing
        is known of this group.
        """
        (row,) = self._encoding.rows([config])
        rows = self._variants(row, rng)
        if len(rows) == 1:
            return dict(config), False
        feasibility, keys = self._feasibility(rows), [self._key(r) for r in rows]
        known = np.array([key in self._measured for key in keys])
        untried = ~known & np.array([key not in self._probed for key in keys]) & (len(self._probed) < self._most)
        if not len(self.rate):
            score = np.where(untried, 1.0, 0.0) + 0.5 * feasibility + 1e-6 * rng.random(len(rows))
            best = int(np.argmax(score))
            probe = best if untried.any() else None
        else:
            means, deviations = self.rate.predict(rows, noise_free=True)
            best = _lowest(means, feasibility, known if known.any() else untried if untried.any() else ~known)
            if known.any():
                gains = untried * expected_excess(means[best], means, deviations) * feasibility
                probe = self._choose_probe(rows, best, gains, untried & (feasibility >= 0.5))
            else:
                probe = best if untried[best] and deviations[best] > CERTAIN else None
        # untuned settings keep their exact values, which the encoding may round
        kept = {name: value for name, value in config.items() if name not in self._tuned_names}
        return {**self._encoding.config(rows[best if probe is None else probe]), **kept}, probe is not None

    def fastest(self, rows: Rows) -> Rows:
        """Return the rows with the tuned settings that are predicted to be the fastest."""
        if not len(self._tuned) or not len(self.rate):
            return rows
        groups = {row[self._shared].tobytes(): row for row in rows}
        if unknown := {key: row for key, row in groups.items() if key not in self._fastest}:
            # the more groups, the fewer variants of each are predicted
            limit = int(np.clip(MAX_LOOKED_UP // len(unknown), MIN_VARIANTS, MAX_VARIANTS))
            rng = np.random.default_rng(0)
            variants = [self._variants(row, rng, limit) for row in unknown.values()]
            together, ends = np.vstack(variants), np.cumsum([len(group) for group in variants])[:-1]
            means = np.split(self.rate.predict(together)[0], ends)
            feasibility = np.split(self._feasibility(together), ends)
            for key, group, mean, odds in zip(unknown, variants, means, feasibility, strict=True):
                self._fastest[key] = group[_lowest(mean, odds, np.ones(len(group), dtype=bool))][self._tuned]
        rows = rows.copy()
        for row in rows:
            row[self._tuned] = self._fastest[row[self._shared].tobytes()]
        return rows

    def _variants(self, row: Rows, rng: np.random.Generator, limit: int = MAX_VARIANTS) -> Rows:
        """Return rows with other tuned settings: all, or a random selection and those measured."""
        known = np.stack([row, *self._measured.values()])
        alike = known[(known[:, self._shared] == row[self._shared]).all(axis=1)]
        rows = np.repeat(row[None], len(alike), axis=0)
        rows[:, self._tuned] = alike[:, self._tuned]
        return np.asarray(np.unique(np.vstack([rows, self._encoding.choices(row, self._tuned, limit, rng)]), axis=0))

    def _choose_probe(self, rows: Rows, best: int, gains: Array, possible: NDArray[np.bool_]) -> int | None:
        """Return the index of the row to probe next; None: no probe pays. `gains` are expected over the row `best`.

        First try values of settings of which too few were measured, and at last the settings that are fastest in most
        other groups, because settings that slow each other down mislead the model.
        """
        tuned, other = rows[:, self._tuned], rows[best, self._tuned]
        num_changed = ((tuned != other) & (tuned != INACTIVE) & (other != INACTIVE)).sum(axis=1)
        if (unvaried := self._of_unvaried(rows) & possible & (num_changed == 1)).any():
            return int(np.argmax(np.where(unvaried, gains, -1.0)))
        if gains.max() > MIN_PROBE_GAIN:
            return int(np.argmax(gains))
        winners = multimode(settings for _, settings in self._winners.values())
        return next((int(i) for i in np.flatnonzero(possible) if rows[i, self._tuned].tobytes() in winners), None)

    def _of_unvaried(self, rows: Rows) -> NDArray[np.bool_]:
        """Return which rows have a new value of a setting of which too few were measured, in any group.

        From fewer the model may take a setting for one without effect.
        """
        found, measured = np.zeros(len(rows), dtype=bool), np.stack(list(self._measured.values()))
        for column in self._tuned:
            known, values = np.unique(measured[:, column]), np.unique(rows[:, column])
            if len(known) < FEWEST_VALUES <= len(values):
                found |= ~np.isin(rows[:, column], known) & (rows[:, column] != INACTIVE)
        return found

    def _key(self, row: Rows) -> bytes:
        return bytes(row[self.rate.columns].tobytes())


def _lowest(means: Array, feasibility: Array, among: NDArray[np.bool_]) -> int:
    """Return the index of the lowest mean of those likely to be feasible; if none is, the likeliest."""
    likely = among & (feasibility >= 0.5)
    scores = np.where(likely, means, np.inf) if likely.any() else np.where(among, -feasibility, 1)
    return int(np.argmin(scores))
