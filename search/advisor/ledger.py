"""The search as an Optuna study: what Optuna's samplers suggest from, and what is told of each trial."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import optuna
from optuna.trial import FrozenTrial, TrialState

from search.advisor.proposal import State
from search.advisor.samplers import encode, make_sampler, recording_sampler, suggest
from search.space.space import Space
from trainables.contract import Scalar


class Ledger:
    """Trials are numbered from 0, in the order in which they are entered."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._entered: list[optuna.Trial] = []
        optuna.logging.set_verbosity(optuna.logging.WARNING)  # it announces each study on the terminal
        self._study = optuna.create_study(directions=["minimize"] * len(space.objectives))  # it is told losses

    def suggest(self, seed: int) -> dict[str, Scalar]:
        """What the space's sampler would try next; nothing is entered."""
        self._study.sampler = make_sampler(self._space, seed)
        draft = self._study.ask()
        chosen = suggest(draft, self._space)
        self._study.tell(draft, state=TrialState.FAIL)  # samplers look at no failed trial: as if never asked
        return chosen

    def enter(self, config: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """A trial of this configuration begins, whoever chose it; returns what of it is searched.

        Raises:
            ValueError: it is not of this space.
        """
        self._study.sampler = recording_sampler(self._space)
        self._study.enqueue_trial(encode(self._space, config))
        told = self._study.ask()
        _ = told.relative_params  # here NSGA-II gives a trial its generation; Optuna would skip it for a forced one
        self._entered.append(told)
        return suggest(told, self._space)

    def tell(
        self,
        number: int,
        state: State,
        reason: str | None,
        losses: Sequence[float] | None,
        excesses: Mapping[str, float],
    ) -> None:
        """How a trial ended. `losses` None: of a complete one, that it measured none and counts as infeasible."""
        told = self._entered[number]
        if reason is not None:
            told.set_user_attr("reason", reason)
        if state == "failed":
            self._study.tell(told, state=TrialState.FAIL)
            return
        if state == "stopped":
            self._study.tell(told, state=TrialState.PRUNED)
            return
        for name, excess in excesses.items():  # between -1 and 1
            told.set_constraint(name, math.copysign(-math.expm1(-abs(excess)), excess))
        if state == "infeasible" or losses is None:
            # As FAIL it would be suggested again and again: samplers forget failures. A violated constraint they
            # remember, and then never look at the values, which Optuna wants all the same. 1 is worse than any other.
            told.set_constraint("works here", 1.0)
            losses = [math.inf] * len(self._space.objectives)
        self._study.tell(told, losses)

    def trials(self) -> list[FrozenTrial]:
        """What Optuna was told, in order: losses, and constraints of which zero or less is kept."""
        told = self._study.get_trials(deepcopy=True)
        return [told[trial.number] for trial in self._entered]
