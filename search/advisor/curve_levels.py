"""Level, spread and error of learning curves by stage: early measurements on the scale of the last ones. NumPy."""

import math
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
FEWEST_FOR_SPREAD = 3  # trials measured at two stages
PRIOR_TRIALS = 4  # that stand for equal spreads and no error


def curve_levels(trials: Sequence[Hashable], progress: Array, values: Array) -> tuple[Array, Array, Array]:
    """Return level, spread and error of each measurement's stage, each of shape (n,): 0, 1 and 0 at the last stage.

    `trials`: which trial a measurement is of, (n,); `progress`, (n,), is equal at equal stages. Where all curves change
    by the same factor and amount, (value - level) / spread is the value at the last stage; the error is the standard
    deviation by which it misses that in these trials. A stage is compared with the next later one by the trials that
    were measured at both, because those that go on are the better ones; without such trials its level is 0.
    """
    stages, places = np.unique(progress, return_inverse=True)
    found = [dict[Hashable, float]() for _ in stages]
    for trial, place, value in zip(trials, places, values, strict=True):
        found[place][trial] = float(value)
    levels, spreads, variances = np.zeros(len(stages)), np.ones(len(stages)), np.zeros(len(stages))
    for place in range(len(stages) - 2, -1, -1):
        for later in range(place + 1, len(stages)):
            if both := [trial for trial in found[place] if trial in found[later]]:
                here, there = (np.array([found[i][trial] for trial in both]) for i in (place, later))
                spreads[place] = spreads[later] * _ratio_of_spreads(here, there)
                levels[place] = here.mean() - spreads[place] * (there.mean() - levels[later]) / spreads[later]
                missed = (there - levels[later]) / spreads[later] - (here - levels[place]) / spreads[place]
                variances[place] = variances[later] + missed @ missed / (len(both) + PRIOR_TRIALS - 2)
                break
    return levels[places], spreads[places], np.sqrt(variances[places])


def _ratio_of_spreads(here: Array, there: Array) -> float:
    """Return how much larger the deviation of `here` is, drawn towards 1 where there are few."""
    n = len(here)
    if n < FEWEST_FOR_SPREAD or not here.std() or not there.std():
        return 1.0
    return math.exp(math.log(here.std() / there.std()) * (n - 1) / (n - 1 + PRIOR_TRIALS))
