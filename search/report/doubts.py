"""Sentences on what is in doubt of the front: trials that cannot be told apart, and points that may be no better."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from search.record.dataframes import Run
from search.record.front_places import FrontPlace
from search.record.trial import Trial
from search.text.numbers import first_few, format_probability, join_words

MOST_NAMED = 4  # trials, in a sentence


def doubts(run: Run) -> Iterator[str]:
    """Yield a sentence for each set of trials that cannot be told apart, and for each doubtful point of the front."""
    told = set[frozenset[str]]()
    for place in run.front_places:
        names = frozenset(trial.trial_id for trial in (place.point, *place.alternatives))
        if place.alternatives and names not in told:
            told.add(names)
            yield not_told_apart(run, place)
        if text := perhaps_no_better(place):
            yield text


def doubts_about(run: Run, trial: Trial) -> list[str]:
    """Return the sentences on a trial; none: it is not on the front, or its place there is not in doubt."""
    places = [place for place in run.front_places if place.point.trial_id == trial.trial_id]
    return [text for place in places for text in (not_told_apart(run, place), perhaps_no_better(place)) if text]


def not_told_apart(run: Run, place: FrontPlace) -> str:
    """Return a sentence on the trials that cannot be told apart from a point of the front; empty: there are none."""
    if not place.alternatives:
        return ""
    odds = run.front_probabilities
    named = [f"{trial.trial_id} ({format_probability(odds[trial.trial_id])})" for trial in place.alternatives]
    which = "at least one of the two" if len(named) == 1 else "at least one of them"
    together = f"{which} is on the front with a probability of {format_probability(place.together)}"
    return f"{place.point.trial_id} cannot be told apart from {_listed(named)}; {together}."


def perhaps_no_better(place: FrontPlace) -> str:
    """Return a sentence on the trials than which a point may be no better; empty: its place is not in doubt by them."""
    if place.is_settled or not place.superior:
        return ""
    others = _listed([trial.trial_id for trial in place.superior])
    odds = f"it is on the front with a probability of {format_probability(place.probability)}"
    return f"{place.point.trial_id} may be no better than {others} in any objective; {odds}."


def _listed(names: Sequence[str]) -> str:
    return join_words(first_few(names, MOST_NAMED))
