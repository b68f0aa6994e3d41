"""Places on the front: each point with the trials that cannot be told apart from it."""

from __future__ import annotations

from dataclasses import dataclass

from search.record.run_state import RunState
from search.record.trial import Trial

LEAST_PROBABLE = 0.05  # of a trial that is named beside a point of the front
SETTLED = 0.9  # probability at which a place needs no further measurement


@dataclass(frozen=True)
class FrontPlace:
    """Point of the front. `alternatives`: trials, also of the front, not told apart from it, the most probable first.

    `probability`: that the point belongs to the front; `together`: that the point or at least one of its alternatives
    does. `superior`: other trials that are surely better in an objective, and in none surely worse; the point belongs
    to the front only if it is better than each of them somewhere.
    """

    point: Trial
    probability: float
    alternatives: tuple[Trial, ...]
    together: float
    superior: tuple[Trial, ...]

    @property
    def is_settled(self) -> bool:
        """True if the point is as probable as a published one should be, without its alternatives."""
        return self.probability >= SETTLED


def front_places(state: RunState) -> list[FrontPlace]:
    """Return the places of the front, best in the first objective first."""
    front = state.front()
    if not front:
        return []
    candidates, draws, odds = state.candidates(), state.front_draws(), state.front_probabilities()
    column = {trial.trial_id: number for number, trial in enumerate(candidates)}
    others = [t for t in candidates if odds[t.trial_id] >= LEAST_PROBABLE]
    others.sort(key=lambda trial: -odds[trial.trial_id])
    places = []
    for point in front:
        signs = [(other, _leads(state, point, other)) for other in others if other is not point]
        alike = tuple(other for other, leads in signs if not any(leads))
        superior = tuple(other for other, leads in signs if any(leads) and max(leads) <= 0)
        together = float(draws[:, [column[trial.trial_id] for trial in (point, *alike)]].any(axis=1).mean())
        places.append(FrontPlace(point, odds[point.trial_id], alike, together, superior))
    return places


def _leads(state: RunState, one: Trial, other: Trial) -> list[int]:
    """Return for each objective 1 if `one` is surely better, by as much as matters, -1 if `other` is, and else 0."""
    found = []
    for objective in state.objectives:
        ratio = state.rate_ratio(one, other) if objective.metric == state.rate_metric else None
        difference = ratio or state.difference(one, other, objective.metric)
        alike = difference.low <= 0 <= difference.high or (ratio is not None and ratio.is_tie)
        found.append(0 if alike else -1 if objective.loss(difference.mean) > 0 else 1)
    return found
