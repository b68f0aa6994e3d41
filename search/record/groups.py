"""Groups of trials that share metrics, and the spread between seeds that they show."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from search.front.objective import Objective
from search.front.seeds import Spread, over_seeds, spread_of
from search.front.shared import SharedMetrics
from search.record.events import Again, Event, Finish
from search.record.trial import Trial


@dataclass(eq=False)
class Group:
    """Trials that share metrics. A group is equal to itself alone."""

    shares: SharedMetrics
    trials: list[Trial] = field(default_factory=list)
    settled: Mapping[str, float] = field(default_factory=dict)  # metrics as turns with other groups settle them
    seed_spreads: Mapping[str, Spread] = field(default_factory=dict)  # by metric, as far as seeds were compared
    _merged: dict[int, dict[str, float]] = field(default_factory=dict)  # by number of epochs

    @property
    def measured(self) -> list[Trial]:
        """The trials whose measurements count."""
        return [trial for trial in self.trials if trial.curve and trial.state != "failed"]

    def metrics(self, epochs: int) -> dict[str, float]:
        """The shared metrics, of trials with so many epochs if they take training; empty: of one trial alone."""
        learned = self.shares.learned
        epochs = epochs if learned else 0
        if epochs not in self._merged:
            if learned:
                measured = [trial.curve[epochs].metrics for trial in self.measured if epochs in trial.curve]
            else:
                measured = [metrics for trial in self.measured for metrics in trial.measurements]
            merged = self.shares.merge(measured)
            if learned and measured:
                merged |= over_seeds([merged or measured[0], *self._of_other_seeds(epochs)], self.seed_spreads)
            self._merged[epochs] = {**merged, **self.settled}
        return self._merged[epochs]

    def seed_deviation(self, metric: str, epochs: int) -> float:
        """Standard deviation between seeds, of a mean over those that were trained; 0: not known."""
        spread, value = self.seed_spreads.get(metric), self.metrics(epochs).get(metric, math.nan)
        return spread.deviation(value, 1 + len(self._of_other_seeds(epochs))) if spread else 0.0

    def _of_other_seeds(self, epochs: int) -> Collection[Mapping[str, float]]:
        """Metrics by seed: trials of the group with one seed are one training, of which the last counts."""
        trained = [trial for trial in self.trials if trial.epochs == epochs]
        return {event.seed: event.metrics for trial in trained for event in trial.again}.values()

    @property
    def first_complete(self) -> Trial | None:
        """The first complete trial, if there is one."""
        return next((trial for trial in self.trials if trial.state == "complete" and trial.epochs), None)

    def seeds(self) -> list[Mapping[str, float]]:
        """Metrics after the last epoch, one for each seed that was trained."""
        trained = [trial for trial in self.trials if trial.again and trial.curve]
        if not trained:
            return []
        first = trained[0].curve[trained[0].epochs].metrics
        return [first, *self._of_other_seeds(trained[0].epochs)]

    def of(self, trials: Mapping[str, Trial]) -> Group:
        """Return the group of these trials, which are copies by name."""
        group = replace(self, trials=[trials[trial.trial_id] for trial in self.trials], _merged=dict(self._merged))
        for trial in group.trials:
            trial.groups += (group,)
        return group

    def settle(self, metrics: Mapping[str, float]) -> None:
        """Replace the metrics as turns have settled them."""
        self.settled = metrics
        self.invalidate()

    def invalidate(self) -> None:
        """Discard what was computed, because a trial has changed."""
        self._merged.clear()


@dataclass
class Groups:
    """All groups of a run. `parameters`: section of its space, with their ranges."""

    shared: Sequence[SharedMetrics] = ()
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    objectives: Sequence[Objective] = ()
    seed_spreads: Mapping[str, Spread] = field(default_factory=dict)  # by metric, as far as seeds were compared
    _by_settings: dict[tuple[int | None, str], Group] = field(default_factory=dict)  # and by length, None for rates
    _nearly_equal: dict[str, list[Group]] = field(default_factory=dict)  # of learned metrics, by settings about equal
    _num_alike: int = 0  # complete trials of nearly equal settings
    _next_comparison: int = 1  # at how many of them to compare again

    def join(self, trial: Trial) -> None:
        """Add a trial to the groups with which it shares metrics, and take it out of those that it was in."""
        keys = [(trial.length if shares.learned else None, shares.key(trial.config)) for shares in self.shared]
        groups = tuple(
            self._by_settings.setdefault(key, Group(shares, seed_spreads=self.seed_spreads))
            for key, shares in zip(keys, self.shared, strict=True)
        )
        before, trial.groups = trial.groups, groups
        for group in before:
            if group not in groups:
                group.trials.remove(trial)
                group.invalidate()
        for group in groups:
            if group in before:
                continue  # it keeps its place, as the first of a group stands for all
            group.trials.append(trial)
            if group.shares.learned:
                alike = self._nearly_equal.setdefault(self._nearly(group, trial), [])
                if group not in alike:
                    alike.append(group)

    def update(self, trial: Trial, event: Event) -> None:
        """Discard what the event of a trial has changed; compare seeds again where it tells of them."""
        if isinstance(event, Again) or (isinstance(event, Finish) and self._tells_of_seeds(trial)):
            self._compare_seeds()
        for group in trial.groups:
            group.invalidate()

    def twins(self, trial: Trial) -> list[Trial]:
        """Return the other complete trials with nearly the same settings, as far as these affect what is learned."""
        found = (each for alike in self._like(trial) for group in alike for each in group.trials)
        return [each for each in found if each is not trial and each.state == "complete"]

    def of(self, trials: Mapping[str, Trial]) -> Groups:
        """Return the groups of these trials, which are copies by name."""
        copies = {group: group.of(trials) for group in self._by_settings.values()}
        by_settings = {key: copies[group] for key, group in self._by_settings.items()}
        nearly = {key: [copies[group] for group in alike] for key, alike in self._nearly_equal.items()}
        return replace(self, _by_settings=by_settings, _nearly_equal=nearly)

    def _nearly(self, group: Group, trial: Trial) -> str:
        return group.shares.nearly(trial.config, self.parameters)

    def _like(self, trial: Trial) -> list[list[Group]]:
        """Return for each of a trial's groups of learned metrics those with nearly the same settings, and itself."""
        return [self._nearly_equal[self._nearly(group, trial)] for group in trial.groups if group.shares.learned]

    def _tells_of_seeds(self, trial: Trial) -> bool:
        """Return whether a trial that has ended is one more of nearly equal settings; of many, each tenth counts."""
        self._num_alike += trial.state == "complete" and any(len(groups) > 1 for groups in self._like(trial))
        if self._num_alike < self._next_comparison:
            return False
        self._next_comparison = max(self._num_alike + 1, int(1.1 * self._num_alike))
        return True

    def _compare_seeds(self) -> None:
        """Estimate the spread between seeds, which enters the intervals of all trials."""
        groups = [group for group in self._by_settings.values() if group.shares.learned]
        trained, nearly = [seeds for group in groups if (seeds := group.seeds())], []
        for alike in self._nearly_equal.values():
            complete = [trial for group in alike if (trial := group.first_complete)]
            longest = max((trial.epochs for trial in complete), default=0)
            nearly.append([trial.curve[longest].metrics for trial in complete if trial.epochs == longest])
        learned = {name for group in groups for name in group.shares.names}
        goals = {objective.metric: objective.goal for objective in self.objectives if objective.metric in learned}
        spreads = {name: spread_of(name, goal, trained, nearly) for name, goal in goals.items()}
        self.seed_spreads = {name: spread for name, spread in spreads.items() if spread is not None}
        for group in groups:
            group.seed_spreads = self.seed_spreads
            group.invalidate()
