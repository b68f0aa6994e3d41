"""Decisions of the search: the next configuration and which trials to stop. Uses no Ray, no clock, no disk."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import get_args

import numpy as np

from search.advisor.optuna_study import OptunaStudy
from search.advisor.proposal import Decision, Proposal
from search.advisor.trial_model import ObservedTrial, TrialModel, finite
from search.front.intervals import merge_repeats
from search.record.events import Event, Finish, Known, Measurement, Repeat, Start
from search.space.space import Space
from search.states import Kind, State
from trainables.contract import Scalar

EPOCHS_SPENT = "budget.total_epochs is spent"
TOLD_BEFORE = "it was told to stop before the search was interrupted"
ATTEMPTS = 10  # to find an untried configuration


class Advisor:
    """Propose configurations, stop running trials, and learn from the results.

    The same seed and the same observations give the same proposals, also after a `replay`. `budget.trials` counts
    proposals, `budget.total_epochs` the epochs observed of all trials together; the caller enforces `hours` and
    `gpu_hours`. `trials` are those that were proposed, by ID.
    """

    def __init__(self, space: Space, seed: int | None = None) -> None:
        self._space = space
        self._seed = space.searcher.seed if seed is None else seed
        self._tried: set[frozenset[tuple[str, Scalar]]] = set()
        self._epochs = 0  # observed, of all trials
        self._grid = space.grid() if space.searcher.name == "grid" else None
        self._num_configs = space.num_configs
        self._model = TrialModel(space)
        self.trials = self._model.trials
        self._probe_tuned = space.probe_tuned_parameters
        self._gain_too_small: str | None = None  # why no further trial is worth its time
        self._pending: dict[str, Scalar] | None = None  # to be trained once probes have found its fastest settings
        self._optuna_study = OptunaStudy(space)

    def propose(self) -> Proposal | None:
        """Return the next configuration to run; None when the budget is spent or the grid is complete."""
        if self.stop_reason is not None:
            return None
        if (least := self._space.budget.least_gain) is not None and self._pending is None:
            gain = self._model.expected_gain(self._rng(3))
            if gain is not None and gain < least:
                added, limit = f"{math.floor(1e5 * gain) / 1e3:.3f}% to the front's hypervolume", f"{least:.3%}"
                self._gain_too_small = f"the next trial was expected to add {added}, below budget.least_gain, {limit}"
                return None
        if self._model.num_started == 0 and self._space.baseline:
            return self._start(self._space.baseline, self._space.trial_kind)
        config, probe = self._model.probe_tuner.tune(self._pending or self._choose(), self._rng(1))
        return self._start(config, "probe" if probe else self._space.trial_kind)

    @property
    def stop_reason(self) -> str | None:
        """Reason why there will be no further proposal; None: there may be."""
        if self._model.num_started >= (self._space.budget.trials or math.inf):
            return "budget.trials is spent"
        if self._epochs_left < self._space.lengths[0]:
            return EPOCHS_SPENT  # what may be left is too little for another trial
        if len(self._tried) >= self._num_configs:
            return "every configuration was tried" if self._grid is None else "the grid is complete"
        return self._gain_too_small

    @property
    def _epochs_left(self) -> float:
        return (self._space.budget.total_epochs or math.inf) - self._epochs

    def observe(
        self, trial_id: str, epoch: int, metrics: Mapping[str, float | None], earlier_decision: str | None = None
    ) -> Decision:
        """Record the metrics of a trial after `epoch` epochs (0: a probe), and decide whether it continues.

        Values that are None, NaN or infinite count as not measured. A trial at its last epoch ends by itself and is
        never stopped; every other trial is stopped when `budget.total_epochs` is spent. STOP is final.
        `earlier_decision`: the decision in the journal; forecasts are not repeated in a replay.

        Raises:
            ValueError: there is no such trial, it has finished, or there is no such epoch.
        """
        trial = self._running(trial_id)
        if epoch < min(1, trial.length):
            raise ValueError(f"{trial_id}: epoch {epoch}; the first is 1, and 0 is for probes")
        self._epochs += max(0, epoch - trial.epochs)
        trial.epochs = max(epoch, trial.epochs)
        trial.metrics = finite(metrics)
        self._model.observe(trial, epoch)
        if epoch >= trial.length:
            return Decision.CONTINUE
        if trial.why_stopped is None:
            if earlier_decision is None or self._space.stopping_rule == "none":
                trial.why_stopped = self._reason_to_stop(trial, epoch)
            elif earlier_decision == Decision.STOP:
                trial.why_stopped = TOLD_BEFORE
        return Decision.STOP if trial.why_stopped else Decision.CONTINUE

    def finish(self, trial_id: str, state: State, metrics: Mapping[str, float | None] | None = None) -> None:
        """Record the final state of a trial.

        complete: its last measurement is final; without a finite value of each objective that takes training it counts
            as infeasible.
        stopped: ended early, by the Advisor's decision or for lack of time; its last measurement is not final.
        infeasible: the configuration cannot run here, and similar ones are avoided; `metrics` holds what is known.
        failed: ended by an error; similar configurations are avoided, because most errors come from a setting.

        Raises:
            ValueError: there is no such trial, it has finished, or there is no such state.
        """
        trial = self._running(trial_id)
        if state not in get_args(State):
            raise ValueError(f'{trial_id}: no state "{state}"; there are {", ".join(get_args(State))}')
        trial.state = state
        trial.metrics |= finite(metrics or {})
        excesses, stated = self._model.finish(trial), self._space.stated_constraints
        told = {str(limit): excess for limit, excess in excesses.items() if trial.losses is None or limit in stated}
        self._optuna_study.tell(trial_id, "failed" if trial.is_preparatory else state, trial.losses, told)

    def replay(self, events: Iterable[Event]) -> list[Proposal]:
        """Learn from a journal; return the trials that were started but have not finished.

        A trial's `repeat` events correct its final metrics, as they do in the report.

        Raises:
            ValueError: this Advisor has a past already, or the journal is not of this space.
        """
        if self.trials:
            raise ValueError("replay into a fresh Advisor; this one has proposed trials")
        events, repeats = list(events), defaultdict[str, list[dict[str, float]]](list)
        for event in events:
            if isinstance(event, Repeat):
                repeats[event.trial_id].append(finite(event.metrics))
        for event in events:
            match event:
                case Known():
                    for known in event.measurements:  # of earlier runs; they are not trials of this run
                        self._model.observe_earlier_run(known)
                case Start():
                    self._restart(Proposal(event.trial_id, event.config, event.kind))
                case Measurement() | Finish() if event.trial_id not in self.trials:
                    continue  # the line in which it started is damaged
                case Measurement():
                    self.observe(event.trial_id, event.epoch, event.metrics, event.decision)
                case Finish():
                    trial = self.trials[event.trial_id]
                    trial.metrics = merge_repeats(trial.metrics, repeats[event.trial_id])
                    is_short = 0 < trial.epochs < trial.length
                    # complete, but budget.epochs was extended since
                    state = "stopped" if event.state == "complete" and is_short else event.state
                    self.finish(event.trial_id, state, event.metrics)
        return [trial.proposal for trial in self.trials.values() if trial.state is None]

    def _choose(self) -> dict[str, Scalar]:
        if self._grid is not None:
            return next(point for point in self._grid if self._key(point) not in self._tried)
        if self._space.searcher.name == "gp":
            return self._model.propose(self._rng(0))
        for attempt in range(ATTEMPTS):
            seed = np.random.SeedSequence([self._seed, self._model.num_started, attempt]).generate_state(1)
            chosen = self._optuna_study.suggest(int(seed[0]))
            if self._key(chosen) not in self._tried:
                break
        return chosen

    def _key(self, chosen: Mapping[str, Scalar]) -> frozenset[tuple[str, Scalar]]:
        """Identify a configuration by all but the settings that probes tune."""
        return frozenset((name, value) for name, value in chosen.items() if name not in self._probe_tuned)

    def _rng(self, purpose: int) -> np.random.Generator:
        """Seed a generator by the observations so far, so that the number of queries does not matter."""
        return np.random.default_rng([self._seed, len(self.trials), self._epochs, purpose])

    def _start(self, config: Mapping[str, Scalar], kind: Kind, name: str | None = None) -> Proposal:
        if name is None:  # the last number, not how many there are: a damaged journal may lack trials
            prefix = self._prefix(kind)
            last = max((int(other[1:]) for other in self.trials if other[0] == prefix), default=0)
            name = f"{prefix}{last + 1:04d}"
        chosen = self._optuna_study.start(name, config)
        proposal = Proposal(name, {**self._space.fixed, **chosen}, kind)
        trial = self._model.start(proposal)
        self._pending = chosen if trial.is_preparatory else None
        if not trial.is_preparatory:
            self._tried.add(self._key(chosen))
        return proposal

    def _prefix(self, kind: Kind) -> str:
        return "t" if kind == self._space.trial_kind else "p"

    def _restart(self, past: Proposal) -> None:
        if past.trial_id in self.trials or past.trial_id[0] != self._prefix(past.kind):
            raise ValueError(f"{past.trial_id}, a {past.kind}, cannot have been started there")
        try:
            proposal = self._start(past.config, past.kind, past.trial_id)
        except ValueError as error:
            raise ValueError(f"{past.trial_id}: its configuration is not of this space: {error}") from error
        if proposal != past:
            raise ValueError(f"{past.trial_id}, a {past.kind} of {past.config}, cannot have come from this space")

    def _running(self, trial_id: str) -> ObservedTrial:
        if trial_id not in self.trials:
            raise ValueError(f'no trial "{trial_id}" was proposed')
        trial = self.trials[trial_id]
        if trial.state is not None:
            raise ValueError(f"{trial_id} is {trial.state} already")
        return trial

    def _reason_to_stop(self, trial: ObservedTrial, epoch: int) -> str | None:
        left = self._epochs_left
        if left <= 0:
            return EPOCHS_SPENT
        if not self._model.is_rung(trial, epoch):
            return None
        if left < trial.length - epoch:
            return "budget.total_epochs has too few epochs left to complete it"
        if left < self._space.lengths[0]:
            return None  # no other could be completed
        return self._model.reason_to_stop(trial, epoch, self._rng(2))
