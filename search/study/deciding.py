"""Choice of the trials whose rates are to be measured in turns next: those on which the front depends most."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection
from statistics import NormalDist

from search.front.objective import Objective
from search.record.run_state import RunState
from search.record.trial import Trial
from trainables.contract import Trainable

MAX_POINTS = 12  # the likeliest on the front
LEAST_DOUBT = 0.05  # a pair with less of it is not worth its time
MOST_SEEDS = 3  # of a point of the front
ROUNDS_AT_A_TIME = 20  # of a pair that is not decided, before others have their chance

NORMAL = NormalDist()
Pair = tuple[Trial, Trial]


def next_pair(run_state: RunState, impossible: Collection[frozenset[str]]) -> Pair | None:
    """Return the pair with the largest doubt, the likelier one on the front first; None: the front is decided.

    `impossible`: pairs of trial names that cannot have turns together.
    """
    pairs = _doubtful_pairs(run_state)
    return next((pair for pair in pairs if frozenset(trial.trial_id for trial in pair) not in impossible), None)


def doubtful_trials(run_state: RunState) -> list[Trial]:
    """Return the trials of all pairs in doubt, one of those that share a rate; those of the largest doubt first."""
    found = dict[str, Trial]()
    for trial in itertools.chain.from_iterable(_doubtful_pairs(run_state)):
        found.setdefault(trial.source(run_state.rate_metric), trial)
    return list(found.values())


def _doubtful_pairs(run_state: RunState) -> list[Pair]:
    """Return the pairs whose order is in doubt, as far as it matters, the largest doubt first.

    It does not matter where the rate is in no objective and no constraint.
    """
    if run_state.rate_metric not in run_state.asked:
        return []
    odds = run_state.front_probabilities()
    likely = sorted((t for t in run_state.candidates() if odds[t.trial_id]), key=lambda t: -odds[t.trial_id])
    pairs = itertools.combinations(likely[:MAX_POINTS], 2)
    doubts = [(_doubt(run_state, *pair) * odds[pair[0].trial_id], pair) for pair in pairs]
    doubts.sort(key=lambda each: -each[0])
    return [pair for doubt, pair in doubts if doubt >= LEAST_DOUBT]


def next_to_train_again(run_state: RunState, seconds: float) -> Trial | None:
    """Return the point of the front to train with another seed, of those that can be trained in the time.

    Picks that have one seed come first, of these the knee, which is recommended: the best of many may be so by luck.
    Then the point whose place on the front is the most doubtful; of equally doubtful ones that with the fewest seeds.
    Of trials with nearly the same settings one is enough, as it hardly matters which of them is run.
    """
    odds, front = run_state.front_probabilities(), {trial.trial_id for trial in run_state.front()}
    knee = run_state.knee
    picked = {trial.trial_id for trial in run_state.picked()}
    fitting = [
        trial
        for trial in run_state.candidates()
        if (trial.trial_id in front or odds[trial.trial_id] >= LEAST_DOUBT)
        and trial.seconds <= seconds
        and not trial.failed_again
        and len(trial.again) < MOST_SEEDS - 1
        and (trial.trial_id in picked or not any(twin.again for twin in run_state.twins(trial)))
    ]

    def key(trial: Trial) -> tuple[bool, bool, float, int]:
        can_wait, doubt = trial.trial_id not in picked or bool(trial.again), odds[trial.trial_id]
        is_first = not can_wait and trial is knee
        return can_wait, not is_first, -round(doubt * (1 - doubt), 2), len(trial.again)

    return min(fitting, key=key, default=None)


def _doubt(run_state: RunState, one: Trial, other: Trial) -> float:
    """Return how doubtful it is which of the two is faster, 0 to 1, as far as the front depends on it.

    The front does not depend on the order if each of the two is better in some other objective. Rounds count against a
    pair, so that one that cannot be decided leaves time for others.
    """
    ratio = run_state.rate_ratio(one, other)
    if ratio is None or ratio.is_decided:
        return 0.0
    faster = NORMAL.cdf(ratio.mean / ratio.deviation)
    others = [objective for objective in run_state.objectives if objective.metric != run_state.rate_metric]
    better = [_chance_of_better(run_state, one, other, objective) for objective in others]
    matters = max(math.prod(better), math.prod(1 - chance for chance in better))
    rounds = run_state.num_rounds(one, other)
    return 2 * min(faster, 1 - faster) * matters / (1 + rounds / (2 * ROUNDS_AT_A_TIME))


def _chance_of_better(run_state: RunState, one: Trial, other: Trial, objective: Objective) -> float:
    """Return the probability that the first trial is no worse in an objective."""
    difference = run_state.difference(one, other, objective.metric)
    lead = -objective.loss(difference.mean)
    return NORMAL.cdf(lead / difference.deviation) if difference.deviation else float(lead >= 0)


def can_decide(trainable: Trainable) -> bool:
    """Return whether points in doubt can be told apart: by turns, or by trainings with other seeds."""
    return hasattr(trainable, "turns") or "seed" in (trainable.PARAMETERS or {})
