"""Pareto front as tables, with a legend and the uncertainty of its numbers."""

from __future__ import annotations

from collections.abc import Iterable

from search.front.intervals import half_interval
from search.record.dataframes import Run
from search.record.run_state import Trial
from search.text.configurations import format_setting
from search.text.markdown import fits, format_tables, wrap
from search.text.metrics import ARROWS, metric_label
from search.text.numbers import format_percent, join_words, plural

MEANING = {"maximize": "higher is better", "minimize": "lower is better"}
RATE = """\
`images_per_second` is the end-to-end rate of the whole job (loading, transfer, forward, backward, update), over
windows after the warm-up, without evaluation and checkpoints. The number after ± is"""

INTERVAL = "half of its 95% interval, of one run. A question mark: too few measurements for an interval."
DEVIATION = "the standard deviation between those windows, within one run."

ONE_RUN = "Each configuration was trained once (n = 1)."
ON_FRONT = "on the front"
PROBABILITY = (
    f"{ON_FRONT}: probability that the point belongs to the front, from the intervals of the rates and the choice of "
    "validation images. The variation between random seeds is not included."
)
TIE = 0.2  # smallest probability at which a trial that is not on the front is named


def front_section(run: Run) -> list[str]:
    """Return the front as tables, the settings that its points share, and the legend."""
    front, data, objectives = run.state.front(), run.info.data.name, run.state.objectives
    measured = {f"{metric_label(o.metric, data)} ({ARROWS[o.goal]})": _cells(run, front, o.metric) for o in objectives}
    names = dict.fromkeys(name for t in front for name in t.test_metrics if "accuracy" in name)
    tested = {metric_label(name, data): _cells(run, front, name) for name in names}
    tested[ON_FRONT] = [format_percent(run.front_probabilities[t.trial_id]) for t in front]
    varying = run.state.varying_parameters(front)
    chosen = {name: [format_setting(t.config[name]) if name in t.config else "" for t in front] for name in varying}
    first = {"trial": [t.trial_id for t in front]}
    groups = (measured | tested, chosen) if fits(first | measured | tested) else (measured, tested | chosen)
    config = run.state.ordered_config(front[0])
    shared = [f"{key}={format_setting(value)}" for key, value in config.items() if key not in varying]
    legend = " ".join(f"{ARROWS[goal]}: {MEANING[goal]}." for goal in dict.fromkeys(o.goal for o in objectives))
    same = f" The same for all of them: {', '.join(shared)}." if len(front) > 1 and shared else ""
    most = max(len(t.repeats) for t in front)
    repeats = f" The front was then probed {plural(most, 'time')} more, in turn." if most else ""
    probable = {t: p for t, p in run.front_probabilities.items() if t not in first["trial"] and p >= TIE}
    ties = [f"{t} ({format_percent(probable[t])})" for t in sorted(probable, key=lambda t: -probable[t])[:8]]
    tied = f" Not distinguishable from them: {', '.join(ties)}." if ties else ""
    notes = [legend + same, f"{ONE_RUN}{repeats} {PROBABILITY}{tied}"]
    if any(half_interval(trial.metrics, "images_per_second") for trial in front):
        earlier_version = any("images_per_second_std" in trial.metrics for trial in front)
        notes.append(f"{RATE} {DEVIATION if earlier_version else INTERVAL}")
    if contended := [trial.trial_id for trial in front if trial.metrics.get("contended")]:
        notes.append(f"Measured while other processes used the cores, so perhaps too low: {join_words(contended)}.")
    return [*format_tables(first, *groups), *map(wrap, notes)]


def _cells(run: Run, trials: Iterable[Trial], metric: str) -> list[str]:
    return [run.state.format_metric(trial, metric) for trial in trials]
