"""Figures of differences on the page: which comparisons, on which axis, with which words."""

import re

from search.page.differences import difference_figures
from search.page.front_status import front_status
from search.record.run_state import RunState
from search.results import Run
from tests.search.runs import typed
from tests.search.test_paired import alike
from tests.search.test_paired import run_state as two_trials
from tests.search.test_results import beside


def figures(tmp_path, state: RunState) -> str:
    return str(difference_figures(front_status(Run(tmp_path, state))))


def test_picks_are_compared_in_each_objective_with_an_interval(tmp_path):
    text = figures(tmp_path, two_trials(alike(0.95, 0.72, 0.70)))
    assert text.count("<figure>") == 1  # rates without intervals are not drawn
    assert "t0001 - t0002: 2.00 points higher (1." in text
    ends = [float(x) for x in re.findall(r'x[12]="([\d.]+)%"[^>]*class="interval"', text)]
    assert all(0 <= end <= 100 for end in ends)


def test_changes_of_one_setting_are_drawn_with_the_band_of_a_tie(tmp_path):
    state = two_trials(alike(0.95, 0.72, 0.70))
    tried = [beside("num_workers", 0, 2, 1.7, again=False), beside("threads", None, 1, 0.6, again=False)]
    for event in typed([*tried[0], *tried[1], *beside("num_workers", 0, 2, 1.8, again=True)]):
        state.apply(event)
    text = figures(tmp_path, state)
    assert text.index("t0001 num_workers 0 -&gt; 2: 1.8") < text.index("t0001 threads default -&gt; 1: 0.6")
    assert 'class="tie"' in text


def test_without_any_interval_nothing_is_drawn(tmp_path):
    state = two_trials(alike(0.95, 0.72, 0.70), known=False)
    for trial in state.trials.values():
        for measurement in trial.curve.values():
            for end in ("val_accuracy_low", "val_accuracy_high"):
                measurement.metrics.pop(end)
    assert figures(tmp_path, state).count("rates") == 0
