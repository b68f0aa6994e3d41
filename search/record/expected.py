"""Values to expect of a run's trials if they are trained again, which the best of many do not reach."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from search.front.selection import expected_values

if TYPE_CHECKING:
    from search.record.run_state import RunState


def expected_again(state: RunState, metric: str) -> dict[str, float]:
    """Return the value of a metric to expect of each candidate, by trial; empty where seeds have no known spread.

    The errors are those between seeds. That of the validation samples is nearly the same for all trials, so that none
    of them is the best because of it.
    """
    trials = state.candidates()
    sources = {trial.source(metric): trial for trial in trials}  # trials that share the metric count once
    deviations = np.array([trial.seed_deviation(metric) for trial in sources.values()])
    if not trials or not deviations.all():
        return {}
    values = np.array([trial.metrics[metric] for trial in sources.values()])
    expected = dict(zip(sources, expected_values(values, deviations).tolist(), strict=True))
    return {trial.trial_id: expected[trial.source(metric)] for trial in trials}
