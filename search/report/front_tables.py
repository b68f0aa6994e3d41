"""The Pareto front as tables, with what its figures mean and how sure they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from search.record.history import Trial
from search.results import Run
from search.text.markdown import fits, tables, wrapped
from search.text.wording import ARROWS, count, half_width, listed, metric_label, percent, setting, spread

MEANING = {"maximize": "higher is better", "minimize": "lower is better"}
RATE = """\
`images_per_second` is the rate of the whole job, end to end (loading, transfer, forward, backward, update), over
windows after the warm-up; no evaluation and no checkpoint is inside. The figure after ± is"""

INTERVAL = "half of its 95% interval, of one run. A question mark: too little was measured to tell."
DEVIATION = "the standard deviation between those windows, within one run."

ONE_RUN = "Each configuration was trained once (n = 1)."
ON_FRONT = "on the front"
HOW_SURE = (
    f"{ON_FRONT}: how probable it is that the point belongs there, given the intervals of the rates and the luck of "
    "which pictures the accuracy is of; another seed would add to that, and is not in it."
)
TIE = 0.2  # the least probability with which another trial is named beside the front


def front_section(run: Run) -> list[str]:
    """The front as tables, what its points share, and what the figures mean."""
    front, data, objectives = run.history.front(), run.info["data"], run.history.objectives
    objective_columns = {
        f"{metric_label(o.metric, data)} ({ARROWS[o.goal]})": _cells(front, o.metric) for o in objectives
    }
    names = dict.fromkeys(name for t in front for name in t.tested if "accuracy" in name)
    tested = {metric_label(name, data): _cells(front, name) for name in names}
    varying = run.history.varying(front)
    chosen = {name: [setting(t.config[name]) if name in t.config else "" for t in front] for name in varying}
    certainty = run.certainty
    tested[ON_FRONT] = [percent(certainty[t.trial_id]) for t in front]
    first = {"trial": [t.trial_id for t in front]}
    groups = (
        (objective_columns | tested, chosen)
        if fits(first | objective_columns | tested)
        else (objective_columns, tested | chosen)
    )
    shared = [f"{key}={setting(value)}" for key, value in run.history.ordered(front[0]).items() if key not in varying]
    legend = " ".join(f"{ARROWS[goal]}: {MEANING[goal]}." for goal in dict.fromkeys(o.goal for o in objectives))
    same = f" The same for all of them: {', '.join(shared)}." if len(front) > 1 and shared else ""
    notes = [legend + same, _how_sure(run, certainty)]
    return [*tables(first, *groups), *map(wrapped, notes), *_rates(front)]


def _how_sure(run: Run, certainty: Mapping[str, float]) -> str:
    """What was measured how often, and which trials the front cannot be told apart from."""
    front = run.history.front()
    most = max(len(trial.repeats) for trial in front)
    again = f" Before this was written the front was probed {count(most, 'time')} more, in turn." if most else ""
    names = {trial.trial_id for trial in front}
    ties = sorted((t for t, p in certainty.items() if t not in names and p >= TIE), key=lambda t: -certainty[t])
    tied = (
        f" Not told apart from them: {', '.join(f'{t} ({percent(certainty[t])})' for t in ties[:8])}." if ties else ""
    )
    return f"{ONE_RUN}{again} {HOW_SURE}{tied}"


def _rates(front: Sequence[Trial]) -> list[str]:
    """How rates were measured, where they were, and which of them others disturbed."""
    blocks = []
    if any(half_width(trial.metrics, "images_per_second") is not None for trial in front):
        of_old = any("images_per_second_std" in trial.metrics for trial in front)
        blocks = [wrapped(f"{RATE} {DEVIATION if of_old else INTERVAL}")]
    disturbed = [trial.trial_id for trial in front if trial.metrics.get("disturbed")]
    if disturbed:
        blocks.append(
            wrapped(f"Measured while something else took the cores, so perhaps too low: {listed(disturbed)}.")
        )
    return blocks


def measured(trial: Trial, metric: str) -> str:
    """A metric with half of its interval; empty: not measured."""
    return spread(trial.metrics[metric], half_width(trial.metrics, metric)) if metric in trial.metrics else ""


def _cells(trials: Iterable[Trial], metric: str) -> list[str]:
    return [measured(trial, metric) for trial in trials]
