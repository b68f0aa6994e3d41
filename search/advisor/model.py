"""What the measurements so far say of configurations that were never run: where the next trial would gain most.

A configuration is worth the hypervolume that it is expected to add to the front once it is trained to its full length,
times the squared probability that it can run here and keeps the constraints; an unfinished one, given its curve too.
Swersky et al. 2014, "Freeze-thaw Bayesian optimization" (arXiv 1406.3896), on several objectives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from search.advisor.acquisition import expected_improvement
from search.advisor.belief import Belief, relative, warped
from search.advisor.encoding import Encoding, Rows
from search.advisor.tuning import Tuner
from search.front.pareto import Losses, hypervolume, is_pareto_optimal, pareto_rank
from search.space.space import Space
from trainables.contract import Scalar

Array = NDArray[np.float64]

KINDS: tuple[Literal["probed", "trained"], ...] = ("probed", "trained")
FIRST_TRIALS, FIRST_PART = 8, 0.25  # drawn evenly, before there is anything to learn from: a part of a small budget
FIRST_MEASURED = 4  # of them, at least
CANDIDATES = 300  # of each kind: anywhere, and beside what is good
SEEDS, OFFSPRING, REFINEMENTS = 20, 6, 2  # the best candidates, changes of each, and how often
CAUTION = 2  # the power of the probability of running; 1 lost 18% of the trials of a toy to memory, 2 lost 14%, 4 13%
NEAR = 0.7  # a bound that is kept by more than a factor of two everywhere needs no forecast
RATES_DIFFER_BY = 0.3  # parts, from setting to setting; the first few may be alike by chance
STEP, SMALL_STEP = 0.15, 0.05  # of a range
MOST_ON_FRONT = 128
# By measurement on recorded curves, as are the next two: 0.25 to 0.7 find about as much, 1 finds less.
WORTH_OF_A_NEW_TRIAL = 0.5  # of what the model promises: the best of many promises is too good
RUNG_GROWTH = 1.6
FIRST_RUNG = 0.1  # of the full length; before it a curve says little, or the contrary


@dataclass
class _Watched:
    """A trial's configuration, and its losses at full length where it got there."""

    row: Rows
    last_epoch: int = 0
    final: Array | None = None


@dataclass
class _Fitted:
    """What follows from the beliefs of one moment."""

    good: Rows  # non-dominated, as far as is believed
    front: Losses  # of trials at full length
    reference_point: Array


class Model:
    """Learns from measurements in the order in which they come; the same order gives the same answers."""

    def __init__(self, space: Space) -> None:
        self._encoding = Encoding(space)
        self._last_epoch = space.last_epoch
        self.rungs = rungs(space.last_epoch)
        every = self._encoding.columns(space.parameters)
        decoupled = space.evaluation == "decoupled"
        probed, trained = (self._encoding.columns(space.bearing_on(what)) if decoupled else every for what in KINDS)
        self._is_probed = [space.is_probed(objective) for objective in space.objectives]
        self._objectives = [
            Belief(self._encoding, probed, relative, RATES_DIFFER_BY)
            if known and decoupled
            else Belief(self._encoding, trained, warped)
            for known in self._is_probed
        ]
        self._tuner: Tuner | None = None
        if space.tuned_by_probes and any(self._is_probed):
            rate = self._objectives[self._is_probed.index(True)]
            self._tuner = Tuner(self._encoding, rate, space.tuned_by_probes, self._allowed)
        self._fails = Belief(self._encoding, every)
        self._excesses = {str(bound): Belief(self._encoding, every) for bound in space.bounds}
        self._trials: dict[str, _Watched] = {}
        self._measured: set[str] = set()
        self._recalled: list[Rows] = []  # what earlier runs know all objectives of
        self._seen: set[bytes] = set()
        trials = space.budget.trials
        self._first_trials = FIRST_TRIALS if trials is None else min(FIRST_TRIALS, round(FIRST_PART * trials))
        if decoupled:  # rates are known from probes, and accuracies depend on less
            self._first_trials = min(self._first_trials, FIRST_MEASURED)
        self._started = 0
        self._first_trial = ""
        self._fitted: _Fitted | None = None

    def start(self, trial_id: str, config: Mapping[str, Scalar], counted: bool = True) -> None:
        """A trial runs; nothing else is to try the same. A probe that only prepares trials is not `counted`."""
        (row,) = self._encoding.rows([config])
        self._trials[trial_id] = _Watched(row)
        if counted:
            self._seen.add(row.tobytes())
            self._started += 1
            self._first_trial = self._first_trial or trial_id
        elif self._tuner:
            self._tuner.ask(row)

    def observe(self, trial_id: str, epoch: int, losses: Array) -> None:
        """Take in a measurement at one of the `rungs`; others say nothing new."""
        trial = self._trials[trial_id]
        if epoch in self.rungs and epoch > trial.last_epoch:
            trial.last_epoch = epoch
            self._measured.add(trial_id)
            self._learn(trial.row, self._progress(epoch), losses)

    def complete(self, trial_id: str, losses: Array) -> None:
        """Take in what a trial came to at full length."""
        trial = self._trials[trial_id]
        trial.final = losses
        self._measured.add(trial_id)
        self._learn(trial.row, 1.0, losses)

    def probed(self, trial_id: str, losses: Array) -> None:
        """Take in what a probe measured: losses of all objectives, NaN for those that take training."""
        self._learn(self._trials[trial_id].row, 1.0, losses)

    def recall(self, config: Mapping[str, Scalar], losses: Array, excesses: Mapping[str, float]) -> None:
        """Take in what an earlier run measured: losses, NaN where it says nothing, and by how much bounds are exceeded.

        It is no trial of this run: what is worth it is tried again.
        """
        (row,) = self._encoding.rows([config])
        self._learn(row, 1.0, losses)
        for name, excess in excesses.items():
            self._excesses[name].learn(row, 1.0, excess)
        if np.isfinite(losses).all():
            self._recalled.append(row)

    def runs(self, trial_id: str, works: bool) -> None:
        """Take in whether a configuration can run here."""
        self._fails.learn(self._trials[trial_id].row, 1.0, -1.0 if works else 1.0)
        self._forget()

    def exceeds(self, trial_id: str, excesses: Mapping[str, float]) -> None:
        """Take in by how much bounds are exceeded; zero or less is within."""
        for name, excess in excesses.items():
            self._excesses[name].learn(self._trials[trial_id].row, 1.0, excess)
        self._forget()

    def propose(self, rng: np.random.Generator) -> dict[str, Scalar]:
        """The most promising configuration that was not tried yet; any one where all have been."""
        if self._knows_little(self._started):
            return self._encoding.config(self._first(rng))
        row, _ = self._best(rng)
        return self._encoding.config(row)

    def tuned(self, config: Mapping[str, Scalar], rng: np.random.Generator) -> tuple[dict[str, Scalar], bool]:
        """The same with the settings that bear on the rate alone as they promise most; whether to probe that first."""
        return self._tuner.tuned(config, rng) if self._tuner else (dict(config), False)

    def worth_going_on(self, trial_id: str, epoch: int, rng: np.random.Generator) -> bool:
        """Whether the rest of a trial gains as much per epoch as a new one would. Asked at `rungs`."""
        if trial_id == self._first_trial:
            return True  # so that there is something to recommend, however short the search is
        if self._knows_little(self._started - 1) or self._trials[trial_id].last_epoch != epoch:
            return False  # a first look is enough: what is worth its full length is not known yet
        own = float(self.gain(self._trials[trial_id].row[None])[0]) / (self._last_epoch - epoch)
        _, best = self._best(rng)
        return own >= WORTH_OF_A_NEW_TRIAL * best / self._last_epoch

    def expected_gain(self, rng: np.random.Generator) -> float | None:
        """By which part the next trial is expected to raise the front's hypervolume; None: too little is known."""
        if self._knows_little(self._started) or all(trial.final is None for trial in self._trials.values()):
            return None
        held = hypervolume(self._look().front, self._look().reference_point)
        return self._best(rng)[1] / held if held else None

    def gain(self, rows: Rows) -> Array:
        """Hypervolume that trials of these configurations are expected to add to the front, shape (m,)."""
        look = self._look()
        means, deviations = self._predict(rows)
        promised = expected_improvement(means, deviations, look.front, look.reference_point)
        return np.asarray(promised * self._allowed(rows) ** CAUTION)

    def _learn(self, row: Rows, progress: float, losses: Array) -> None:
        for belief, known, loss in zip(self._objectives, self._is_probed, losses, strict=True):
            if np.isfinite(loss):
                belief.learn(row, 1.0 if known else progress, float(loss))
                if self._tuner and known:
                    self._tuner.learn(row, float(loss))
        self._forget()

    def _fastest(self, rows: Rows) -> Rows:
        return self._tuner.fastest(rows) if self._tuner else rows

    def _forget(self) -> None:
        """What was concluded from less than is known now."""
        self._fitted = None
        if self._tuner:
            self._tuner.forget()

    def _knows_little(self, started: int) -> bool:
        """Whether so many trials and what was recalled are too little to choose by."""
        recalled = len(self._recalled)
        return started + recalled < self._first_trials or len(self._measured) + recalled < FIRST_MEASURED

    def _predict(self, rows: Rows) -> tuple[Array, Array]:
        """Means and standard deviations of all objectives at full length, each (m, num_objectives)."""
        predicted = [belief.predict(rows) for belief in self._objectives]
        return np.stack([mean for mean, _ in predicted], axis=1), np.stack([dev for _, dev in predicted], axis=1)

    def _allowed(self, rows: Rows) -> Array:
        """Probability of running here and of keeping all bounds, shape (m,)."""
        odds = np.ones(len(rows))
        if self._fails.highest > 0:
            odds = odds * self._fails.probability_below_zero(rows)
        for belief in self._excesses.values():
            if belief.highest > -NEAR:
                odds = odds * belief.probability_below_zero(rows)
        return odds

    def _look(self) -> _Fitted:
        if self._fitted is None:
            final = [trial for trial in self._trials.values() if trial.final is not None]
            ranks = pareto_rank(np.stack([t.final for t in final])) if final else np.empty(0)  # type: ignore[misc]
            kept = [final[i] for i in np.argsort(ranks, kind="stable")[:MOST_ON_FRONT]]
            others = [t for t in self._trials.values() if t.final is None and t.last_epoch][-MOST_ON_FRONT:]
            rows = np.stack([*(trial.row for trial in [*kept, *others]), *self._recalled[-MOST_ON_FRONT:]])
            means, _ = self._predict(rows)
            optimal = is_pareto_optimal(means)
            nadir = means[optimal].max(axis=0) + 0.1 * np.ptp(means[optimal], axis=0) + 1e-9
            # what random trials give is worth beating, even where no point of the front is as bad
            reference = np.maximum(np.quantile(means, 0.8, axis=0), nadir)
            self._fitted = _Fitted(rows[optimal], means[: len(kept)], reference)
        return self._fitted

    def _best(self, rng: np.random.Generator) -> tuple[Rows, float]:
        """The most promising configuration not tried yet, and its gain."""
        good = self._look().good
        beside = self._encoding.mutated(rng, good[rng.integers(len(good), size=CANDIDATES)], STEP)
        rows = np.vstack([self._encoding.random(rng, CANDIDATES), beside])
        best, most = rows[0], -1.0
        for _ in range(REFINEMENTS + 1):
            rows = self._fresh(self._fastest(rows))
            if not len(rows):
                break
            gains = self.gain(rows)
            order = np.argsort(-gains, kind="stable")[:SEEDS]
            if gains[order[0]] > most:
                best, most = rows[order[0]], float(gains[order[0]])
            rows = self._encoding.mutated(rng, np.repeat(rows[order], OFFSPRING, axis=0), SMALL_STEP)
        return best, max(most, 0.0)

    def _first(self, rng: np.random.Generator) -> Rows:
        """Drawn evenly, but rather from where things run."""
        rows = self._fastest(self._encoding.random(rng, 64))
        fresh = self._fresh(rows)
        rows = fresh if len(fresh) else rows
        odds = self._allowed(rows) ** CAUTION
        return np.asarray(rows[rng.choice(len(rows), p=odds / odds.sum())])

    def _fresh(self, rows: Rows) -> Rows:
        return rows[[row.tobytes() not in self._seen for row in rows]]

    def _progress(self, epoch: int) -> float:
        """0 at the first epoch, 1 at the last, by the logarithm: most happens early."""
        return float(np.log(epoch) / np.log(self._last_epoch))


def rungs(last_epoch: int) -> list[int]:
    """Epochs before the last at which curves are looked at."""
    found, rung = list[int](), max(1, round(FIRST_RUNG * last_epoch))
    while rung < last_epoch:
        found.append(rung)
        rung = max(round(rung * RUNG_GROWTH), rung + 1)
    return found
