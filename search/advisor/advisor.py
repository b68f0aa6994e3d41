"""What to try next, what to stop: a model of the trials, or an Optuna sampler. No Ray, no clock, no disk."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast, get_args

import numpy as np
from optuna.trial import FrozenTrial

from search.advisor.halving import Halving
from search.advisor.ledger import Ledger
from search.advisor.model import Model
from search.advisor.proposal import Decision, FinishedTrial, Proposal, State, UnknownTrialError
from search.front.objective import Constraint, losses, measured
from search.front.pareto import is_pareto_optimal
from search.record.journal import Event
from search.space.space import Space
from trainables.contract import Scalar

OUT_OF_EPOCHS = "budget.total_epochs is spent"
BASELINE = "t0001"  # in a space that has one
ATTEMPTS = 10  # to find a configuration that has not been tried yet


@dataclass
class _Trial:
    proposal: Proposal
    number: int  # in the ledger
    epoch: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    stop: bool = False
    state: State | None = None  # None: running


class Advisor:
    """Proposes configurations, judges them while they run, learns from what became of them.

    The same seed and the same observations give the same proposals, also where `replay` came between.
    `budget.trials` counts proposals, `budget.total_epochs` the epochs observed of all trials together; `budget.hours`
    is for whoever has a clock.
    """

    def __init__(self, space: Space, seed: int | None = None) -> None:
        """`seed` None: that of `space.searcher`."""
        self._space = space
        self._seed = space.searcher.seed if seed is None else seed
        self._trials: dict[str, _Trial] = {}
        self._tried: set[frozenset[tuple[str, Scalar]]] = set()
        self._epochs = 0  # observed, of all trials
        self._last_numbers = Counter[str]()  # by letter; a journal may have lost some trials
        self._counted = 0  # trials that the budget counts: probes that only prepare others are none
        self._grid = sorted(space.grid(), key=self._is_other) if space.searcher.name == "grid" else None
        stopping = space.stopping
        self._halving = (
            Halving(stopping.grace_epochs, stopping.reduction_factor, space.budget.epochs)
            if space.stops_by == "halving"
            else None
        )
        self._decoupled = space.evaluation == "decoupled"
        models = space.searcher.name == "gp" or space.stops_by == "forecast" or self._decoupled
        self._model = Model(space) if models else None
        self._free = space.tuned_by_probes
        self._forecasts = space.stops_by == "forecast"
        self._enough: str | None = None  # why no further trial is worth its time
        self._tuning: dict[str, Scalar] | None = None  # what is to be trained once probes have found how
        self._ledger = Ledger(space)

    def propose(self) -> Proposal | None:
        """The next configuration to run; None when the budget is spent or the grid is through."""
        if self.spent is not None:
            return None
        self._enough = self._gains_too_little()
        if self._enough is not None:
            return None
        number = self._counted
        if number == 0 and self._space.baseline:
            return self._start(self._space.baseline, self._space.kind)
        chosen = self._tuning or (self._choose(number) if self._grid is None else self._next_point(self._grid))
        if self._decoupled and self._model is not None:
            config, probe = self._model.tuned(chosen, self._rng(1))
            return self._start(config, "probe" if probe else "train")
        return self._start(chosen, self._space.kind)

    @property
    def spent(self) -> str | None:
        """Why there will be no further proposal; None: there will be."""
        budget, number = self._space.budget, self._counted
        if budget.trials is not None and number >= budget.trials:
            return "budget.trials is spent"
        if budget.total_epochs is not None and self._epochs >= budget.total_epochs:
            return OUT_OF_EPOCHS
        if self._grid is not None and number >= len(self._grid):
            return "the grid is through"
        return self._enough

    def _gains_too_little(self) -> str | None:
        """Why the next trial is not worth its time; None: it is, or nobody asked."""
        least = self._space.budget.least_gain
        if least is None or self._model is None or self._tuning is not None:
            return None
        gain = self._model.expected_gain(self._rng(3))
        if gain is None or gain >= least:
            return None
        return f"the next trial was expected to add {gain:.2%} to the front's hypervolume, below budget.least_gain"

    def observe(self, trial_id: str, epoch: int, metrics: Mapping[str, float | None]) -> Decision:
        """Take in what a trial measured after `epoch` epochs (0: a probe), and say whether it is worth more of them.

        Values that are None, NaN or infinite count as not measured. At its last epoch a trial ends by itself and is
        never stopped. When `budget.total_epochs` is used up every other trial is. Once STOP, always STOP.

        Raises:
            UnknownTrialError: there is no such trial.
            ValueError: it has finished, or there is no such epoch.
        """
        return self._take_in(trial_id, epoch, metrics, None)

    def _take_in(self, trial_id: str, epoch: int, metrics: Mapping[str, float | None], decided: str | None) -> Decision:
        """As `observe`; `decided`: what was answered in an earlier life."""
        trial = self._running(trial_id)
        last_epoch = 0 if trial.proposal.kind == "probe" else self._space.last_epoch
        if epoch < min(1, last_epoch):
            raise ValueError(f"{trial_id}: epoch {epoch}; the first is 1, and 0 is for probes")
        self._epochs += max(0, epoch - trial.epoch)
        trial.epoch = max(epoch, trial.epoch)
        trial.metrics = _finite(metrics)
        self._note(trial, epoch)
        if epoch < last_epoch:
            goes_on = decided != Decision.STOP if decided and self._forecasts else self._goes_on(trial, epoch)
            trial.stop = trial.stop or not goes_on
        return Decision.STOP if trial.stop else Decision.CONTINUE

    def recall(self, config: Mapping[str, Scalar], metrics: Mapping[str, float | None]) -> None:
        """Take in what an earlier run measured: no trial of this one, but a reason to expect its like."""
        if self._model is not None:
            known = _finite(metrics)
            found = [o.loss(known.get(o.metric, math.nan)) for o in self._space.objectives]
            self._model.recall(config, np.array(found), self._excesses(known, self._space.bounds))

    def metrics(self, trial_id: str) -> dict[str, float]:
        """The finite values of a trial's last measurement.

        Raises:
            UnknownTrialError: there is no such trial.
        """
        return dict(self._known(trial_id).metrics)

    def finish(
        self, trial_id: str, state: str, reason: str | None = None, metrics: Mapping[str, float | None] | None = None
    ) -> None:
        """Learn what became of a trial.

        complete: its last measurement is final; without a finite value of each objective it counts as infeasible.
        stopped: ended early, by the Advisor's advice or for lack of time; its last measurement is not final.
        infeasible: this configuration cannot run here, and its like are avoided; `metrics` says what is known of it.
        failed: ended for a reason that says nothing about the configuration.

        Raises:
            UnknownTrialError: there is no such trial.
            ValueError: it has already finished, or there is no such state.
        """
        trial = self._running(trial_id)
        if state not in get_args(State):
            raise ValueError(f'{trial_id}: no state "{state}"; there are {", ".join(get_args(State))}')
        trial.state = cast(State, state)
        trial.metrics |= _finite(metrics or {})
        self._conclude(trial)
        found = losses([trial.metrics], self._space.objectives)[0].tolist() if self._is_measured(trial) else None
        bounds = self._space.constraints if found else self._space.bounds
        counted = trial.proposal.kind == self._space.kind
        excesses = self._excesses(trial.metrics, bounds)
        self._ledger.tell(trial.number, trial.state if counted else "failed", reason, found, excesses)

    def pareto_set(self, layers: int = 1) -> list[FinishedTrial]:
        """Trials that no other dominates, best in the first objective first.

        `layers`: 2 for those, too, that none but these dominates, and so on. All are complete, measured, within the
        constraints and trained as long as the longest such trial.
        """
        trials = [t for t in self._trials.values() if self._acceptable(t)]
        trials = [t for t in trials if t.proposal.kind == self._space.kind]
        longest = max((t.epoch for t in trials), default=0)
        trials = [t for t in trials if t.epoch == longest]
        table = losses([t.metrics for t in trials], self._space.objectives)
        chosen = np.zeros(len(trials), dtype=bool)
        for _ in range(layers):
            chosen[~chosen] = is_pareto_optimal(table[~chosen])
        return [_finished(trials[i]) for i in np.lexsort(table.T[::-1]) if chosen[i]]

    def replay(self, events: Iterable[Event]) -> list[Proposal]:
        """Live through a journal again; returns the trials that were started but have not finished.

        Raises:
            ValueError: this Advisor has a past already, or the journal is not of this space.
        """
        if self._trials:
            raise ValueError("replay into a fresh Advisor; this one has proposed trials")
        for event in events:
            match event["event"]:
                case "known":
                    for known in event["measurements"]:
                        self.recall(known["config"], known["metrics"])
                case "start":
                    self._restart(Proposal(event["trial_id"], event["config"], event.get("kind", "train")))
                case "measurement" | "finish" if event["trial_id"] not in self._trials:
                    continue  # the line in which it started is damaged
                case "measurement":
                    self._take_in(event["trial_id"], event["epoch"], event["metrics"], event.get("decision"))
                case "finish":
                    self.finish(event["trial_id"], event["state"], event.get("reason"), event.get("metrics"))
        return [trial.proposal for trial in self._trials.values() if trial.state is None]

    def study_trials(self) -> list[FrozenTrial]:
        """What Optuna was told of each proposal, in order: losses, and constraints of which zero or less is kept."""
        return self._ledger.trials()

    def _choose(self, number: int) -> dict[str, Scalar]:
        """What is suggested for the trial of this number: not tried yet, if there is any."""
        if self._space.searcher.name == "gp" and self._model is not None:
            return self._model.propose(self._rng(0))
        for attempt in range(ATTEMPTS):
            seed = np.random.SeedSequence([self._seed, number, attempt]).generate_state(1)
            chosen = self._ledger.suggest(int(seed[0]))
            if self._key(chosen) not in self._tried:
                break
        return chosen

    def _key(self, chosen: Mapping[str, Scalar]) -> frozenset[tuple[str, Scalar]]:
        """What tells trials apart; what probes tune does not."""
        return frozenset((name, value) for name, value in chosen.items() if name not in self._free)

    def _rng(self, purpose: int) -> np.random.Generator:
        """Depends on what happened, not on how often anything was asked."""
        return np.random.default_rng([self._seed, len(self._trials), self._epochs, purpose])

    def _note(self, trial: _Trial, epoch: int) -> None:
        """Tell the model what was measured."""
        if self._model is None:
            return
        trial_id, objectives = trial.proposal.trial_id, self._space.objectives
        if trial.proposal.kind != self._space.kind:
            found = [o.loss(trial.metrics.get(o.metric, math.nan)) for o in objectives]
            self._model.probed(trial_id, np.array(found))
        elif measured(trial.metrics, objectives):
            self._model.observe(trial_id, epoch, losses([trial.metrics], objectives)[0])

    def _conclude(self, trial: _Trial) -> None:
        """Tell the model what became of a trial."""
        if self._model is None or trial.state == "failed":
            return
        trial_id, objectives = trial.proposal.trial_id, self._space.objectives
        if trial.metrics:
            self._model.exceeds(trial_id, self._excesses(trial.metrics, self._space.bounds))
        counted = trial.proposal.kind == self._space.kind
        complete = self._is_measured(trial)
        if complete and counted:
            self._model.complete(trial_id, losses([trial.metrics], objectives)[0])
        prepared = trial.state == "complete" and not counted
        self._model.runs(trial_id, works=complete or prepared or trial.state == "stopped")

    def _start(
        self, config: Mapping[str, Scalar], kind: Literal["train", "probe"], name: str | None = None
    ) -> Proposal:
        """Enter a configuration into the ledger: the one way in, for new and for replayed trials."""
        chosen = self._ledger.enter(config)
        counted = kind == self._space.kind
        letter = "t" if counted else "p"
        name = name or f"{letter}{self._last_numbers[letter] + 1:04d}"
        self._last_numbers[letter] = max(self._last_numbers[letter], int(name[1:]))
        proposal = Proposal(name, {**self._space.fixed, **chosen}, kind)
        self._counted += counted
        self._trials[proposal.trial_id] = _Trial(proposal, len(self._trials))
        self._tuning = None if counted else dict(chosen)
        if counted:
            self._tried.add(self._key(chosen))
        if self._model is not None:
            self._model.start(proposal.trial_id, chosen, counted=counted)
        return proposal

    def _next_point(self, grid: Sequence[Mapping[str, Scalar]]) -> dict[str, Scalar]:
        return dict(next((point for point in grid if self._key(point) not in self._tried), grid[-1]))

    def _restart(self, past: Proposal) -> None:
        if past.trial_id in self._trials or past.trial_id[0] != ("t" if past.kind == self._space.kind else "p"):
            raise ValueError(f"{past.trial_id}, a {past.kind}, cannot have been started there")
        try:
            proposal = self._start(past.config, past.kind, past.trial_id)
        except ValueError as error:
            raise ValueError(f"{past.trial_id}: its configuration is not of this space: {error}") from error
        if proposal != past:
            raise ValueError(f"{past.trial_id}, a {past.kind} of {past.config}, cannot have come from this space")

    def _known(self, trial_id: str) -> _Trial:
        if trial_id not in self._trials:
            raise UnknownTrialError(f'no trial "{trial_id}" was proposed')
        return self._trials[trial_id]

    def _running(self, trial_id: str) -> _Trial:
        trial = self._known(trial_id)
        if trial.state is not None:
            raise ValueError(f"{trial_id} is {trial.state} already")
        return trial

    def _goes_on(self, trial: _Trial, epoch: int) -> bool:
        total = self._space.budget.total_epochs
        if total is not None and self._epochs >= total:
            return False
        if self._forecasts and self._model is not None and epoch in self._model.rungs:
            if total is not None and total - self._epochs < self._space.last_epoch - epoch:
                return False  # it could not get to its end
            return self._model.worth_going_on(trial.proposal.trial_id, epoch, self._rng(2))
        if self._halving is None or (self._space.baseline and trial.proposal.trial_id == BASELINE):
            return True
        objectives = self._space.objectives
        row = losses([trial.metrics], objectives)[0] if measured(trial.metrics, objectives) else None
        return self._halving.goes_on(trial.proposal.trial_id, epoch, row)

    def _is_measured(self, trial: _Trial) -> bool:
        """Whether it came to its end with a finite value of each objective."""
        return trial.state == "complete" and measured(trial.metrics, self._space.objectives)

    def _acceptable(self, trial: _Trial) -> bool:
        excesses = self._excesses(trial.metrics, self._space.constraints)
        return self._is_measured(trial) and all(excess <= 0 for excess in excesses.values())

    def _is_other(self, config: Mapping[str, Scalar]) -> bool:
        """Whether it is not the baseline, which comes first."""
        return config != self._space.baseline

    def _excesses(self, metrics: Mapping[str, float], bounds: Iterable[Constraint]) -> dict[str, float]:
        """By bound; without those whose metric was not measured, and of the baseline's while that is not known."""
        first = self._trials.get(BASELINE) if self._space.baseline else None
        baseline = first.metrics if first and first.state == "complete" else {}
        given = {str(bound): bound.given(baseline) for bound in bounds}
        return {name: b.excess(metrics[b.metric]) for name, b in given.items() if b and b.metric in metrics}


def _finite(metrics: Mapping[str, float | None]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items() if value is not None and math.isfinite(value)}


def _finished(trial: _Trial) -> FinishedTrial:
    return FinishedTrial(trial.proposal.trial_id, dict(trial.proposal.config), dict(trial.metrics), trial.epoch)
