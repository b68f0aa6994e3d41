"""Named points of a front: the best of each objective, and the knee."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from search.front.intervals import least_value
from search.front.objective import measured
from search.front.roles import wanted_test_metrics
from search.record.dataframes import Run
from search.record.trial import Trial
from search.text.numbers import format_difference, format_number, format_probability, format_ratio, plural, plus_minus

NEAREST = "nearest to the best values of all objectives, each scaled to what trials usually lack of its best"
LIKELY = 0.5  # probability of a place on the front, below which a pick says so
FEWEST_ALIKE = 3  # trainings with one value of a learned metric that are worth a sentence
TEST_FAILED = "test failed:"
LUCKY = 0.1  # of half of a 95% interval: the least luck that is worth a sentence


@dataclass(frozen=True)
class Pick:
    """A trial worth running, with its name and the reason."""

    name: str
    why: str
    trial: Trial


def picks(run: Run) -> list[Pick]:
    """Return the best of the first objective, the knee, and the best of each other objective; empty without a front.

    One trial may be several of these picks.
    """
    picked = run.state.picked()
    if not picked:
        return []
    compared = plural(len(run.state.candidates()), "trial")
    ends = [
        Pick(
            best_name(objective.metric, run.state.rate_metric),
            f"best {run.state.label(objective.metric)} of the {compared} compared",
            trial,
        )
        for objective, trial in zip(run.state.objectives, [picked[0], *picked[2:]], strict=True)
    ]
    return [ends[0], Pick("knee", NEAREST, picked[1]), *ends[1:]]


def best_name(metric: str, rate: str) -> str:
    """Return the name of the point that is best in this metric; `rate`: the training's rate."""
    if metric == rate:
        return "fastest"
    return "most accurate" if metric == "val_accuracy" else f"best {metric}"


def praise(run: Run) -> str:
    """Return what the recommended trial is among those that can be compared; there must be a front."""
    if len(run.state.candidates()) == 1:
        return "the only trial that can be compared"
    if len({pick.trial.trial_id for pick in picks(run)}) > 1:
        return "the best compromise"
    return "best in everything" if len(run.state.front()) == 1 else "best or equal in everything"


def learned_alike(run: Run) -> list[str]:
    """Return a sentence on each objective that all trainings have learned equally, which says nothing of settings."""
    compared, found = run.state.candidates(), []
    for objective in run.state.objectives:
        values = {trial.source(objective.metric): trial.metrics[objective.metric] for trial in compared}
        is_learned = run.info.is_learned(objective.metric)
        if is_learned and len(values) >= FEWEST_ALIKE and len(set(values.values())) == 1:
            what = f"all {len(values)} trainings have the same {run.state.label(objective.metric)}"
            found.append(f"Note that {what}: they may have learned nothing.")
    return found


def picks_by_trial(run: Run) -> list[list[Pick]]:
    """Return the picks, grouped by trial."""
    by_trial: dict[str, list[Pick]] = defaultdict(list)
    for pick in picks(run):
        by_trial[pick.trial.trial_id].append(pick)
    return list(by_trial.values())


def against(run: Run, trial: Trial) -> list[str]:
    """Return one sentence for each other picked trial and for the baseline that compares this trial with it."""
    named = {same[0].trial.trial_id: same[0].name for same in picks_by_trial(run)}
    usual = run.state.baseline
    if usual is not None and usual.state == "complete" and measured(usual.metrics, run.state.objectives):
        also = named.get(usual.trial_id)
        named[usual.trial_id] = f"{also}, which is the baseline" if also else f"baseline, {usual.trial_id}"
    others = {name: run.state.trials[trial_id] for trial_id, name in named.items() if trial_id != trial.trial_id}
    return [f"Against the {name}: {_beside(run, trial, other)}." for name, other in others.items()]


def outcome(run: Run, trial: Trial) -> dict[str, str]:
    """Return a trial's objectives and test metrics with their intervals, by label; or why its test failed."""
    objectives = [o.metric for o in run.state.objectives]
    metrics = [*objectives, *wanted_test_metrics(objectives, trial.test_metrics)]
    seed = " (first seed)" if trial.again else ""  # the test set is read once
    found = {
        run.state.label(metric) + (seed if metric in trial.test_metrics else ""): run.state.format_metric(trial, metric)
        for metric in metrics
    }
    return {**found, TEST_FAILED: trial.test_failure} if trial.test_failure else found


def improbable(run: Run, trial: Trial) -> list[str]:
    """Return a sentence where a picked trial is rather not on the front; none: it rather is."""
    odds = run.front_probabilities[trial.trial_id]
    told = f"{trial.trial_id} is on the front with a probability of {format_probability(odds)} only."
    return [told] * (odds < LIKELY)


def lucky(run: Run, trial: Trial) -> list[str]:
    """Return a sentence on each objective that another training of a trial is expected not to reach."""
    found = []
    for objective in run.state.objectives:
        metric = objective.metric
        luck, half = run.state.luck(trial, metric), run.state.half_interval(trial, metric) or 0.0
        if -objective.loss(luck) > LUCKY * half:
            label, shown = run.state.label(metric), plus_minus(trial.metrics[metric] - luck, half, least_value(metric))
            found.append(f"Its {label} is partly luck: if {trial.trial_id} is trained again, expect {shown}.")
    return found


def no_front(run: Run) -> str:
    """Return the reason why a run has no front."""
    if not run.state.trials:
        return "no trial was started"
    if not run.state.counts()["complete"]:
        return "no trial completed, so there is no Pareto front"
    violated = "; ".join(_violated(run))
    why = "no complete trial has every objective measured within the constraints, so there is no Pareto front"
    return f"{why}: {violated}" if violated else why


def _violated(run: Run) -> Iterator[str]:
    """Yield how many of the complete trials violate each constraint, and which one the least."""
    complete = run.state.complete()
    for constraint in run.state.constraints:
        known = {t.trial_id: t.metrics[constraint.metric] for t in complete if constraint.metric in t.metrics}
        given = constraint.given(run.state.baseline_metrics)
        excesses = {name: given.excess(value) for name, value in known.items()} if given else {}
        if beyond := [name for name, excess in excesses.items() if excess > 0]:
            nearest = min(beyond, key=excesses.__getitem__)
            number = f"{len(beyond)} of {plural(len(complete), 'complete trial')}"
            yield f"{constraint} is violated by {number}, least by {nearest} with {format_number(known[nearest])}"


def _beside(run: Run, trial: Trial, other: Trial) -> str:
    """Compare each objective with that of the other trial: by difference where that has an error, else by ratio."""
    state, parts = run.state, []
    for metric in (o.metric for o in state.objectives):
        value, base, label = trial.metrics[metric], other.metrics[metric], state.label(metric)
        ratio = state.rate_ratio(trial, other) if metric == state.rate_metric else None
        difference = state.difference(trial, other, metric)
        is_fraction = state.is_fraction(metric)
        if ratio is not None:
            tie = ", a tie" if ratio.is_tie else ""
            parts.append(f"{format_ratio(*ratio.ratio)} times its {label}{tie}")
        elif is_fraction or difference.deviation or base <= 0:
            ends = difference.mean, difference.low, difference.high
            parts.append(f"{label} {format_difference(*ends, in_points=is_fraction)}")
        else:
            parts.append(f"{value / base:.2f} times its {label}")
    return ", ".join(parts)
