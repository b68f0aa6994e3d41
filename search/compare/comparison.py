"""Comparison of several runs: common front, hypervolumes, shared configurations, and differences in conditions."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, cast

import numpy as np

from search.exit_codes import InputError
from search.front.intervals import half_interval, merge_repeats
from search.front.objective import losses, reference_metrics
from search.front.pareto import Losses, front_order, hypervolume, is_pareto_optimal
from search.record.dataframes import Run
from search.record.trial import Trial
from search.text.configurations import format_setting
from search.text.numbers import format_number, join_words, plural

LETTERS = "ABCDEFGH"


@dataclass(frozen=True)
class Side:
    """A run and the letter that names it in the comparison."""

    letter: str
    run: Run


@dataclass(frozen=True)
class Reading:
    """Value of a metric in one run for one configuration.

    `half`: half of its 95% interval; infinite: too few measurements, None: the value is exact, or nothing is known.
    """

    value: float
    half: float | None
    trials: int
    contended: bool  # in every trial, other processes used the cores


@dataclass(frozen=True)
class Shared:
    """Configuration that several runs measured, reduced to the settings that affect the metric; readings by letter."""

    config: dict[str, Any]
    readings: dict[str, Reading]

    def ratio(self, letter: str, base: str) -> tuple[float, float | None]:
        """Return the ratio of two readings, NaN to zero, and half of its 95% interval, as `Reading` has it."""
        one, other = self.readings[letter], self.readings[base]
        ratio = one.value / other.value if other.value else math.nan
        if (one.half is None and other.half is None) or not one.value or not other.value:
            return ratio, None
        return ratio, ratio * math.hypot((one.half or 0.0) / one.value, (other.half or 0.0) / other.value)


def sides(runs: Sequence[Run]) -> list[Side]:
    """Give each run a letter.

    Raises:
        InputError: fewer than two runs, too many, or runs with different trainables or objectives.
    """
    if not 2 <= len(runs) <= len(LETTERS):
        raise InputError(f"found {plural(len(runs), 'run')}; expected 2 to {len(LETTERS)}")
    if single := next((run for run in runs if len(run.state.objectives) < 2), None):
        raise InputError(f"{single.name}: has one objective; a comparison needs two")
    named = [Side(letter, run) for letter, run in zip(LETTERS, runs, strict=False)]
    first = runs[0]
    for side in named[1:]:
        # runs name a user's file by its place beside them
        if Path(side.run.info.trainable).name != Path(first.info.trainable).name:
            names = [Path(info.trainable).name for info in (side.run.info, first.info)]
            what = f"trains {names[0]}, and A {names[1]}"
            raise InputError(f"{side.letter} ({side.run.name}) {what}; only runs of one trainable can be compared")
        here, there = ([f"{o.goal} {o.metric}" for o in run.state.objectives] for run in (side.run, first))
        if set(here) != set(there):
            what = f"is to {join_words(here)}, and A to {join_words(there)}"
            rule = "only runs with the same objectives can be compared"
            raise InputError(f"{side.letter} ({side.run.name}) {what}; {rule}")
    return named


def together(named: Sequence[Side]) -> list[tuple[Side, Trial]]:
    """Return the common front of all runs, sorted by the first objective, best first."""
    points = [(side, trial) for side in named for trial in side.run.state.front()]
    table = losses([trial.metrics for _, trial in points], named[0].run.state.objectives)
    return [points[i] for i in front_order(table)]


def hypervolumes(named: Sequence[Side]) -> tuple[list[float], list[float]] | None:
    """Return the hypervolume of each run, then that of all together, and their reference point in the metrics' units.

    The reference point is the worst value on any of the fronts, moved outwards by a tenth of the range: a bad trial of
    one of the runs does not change it, and one that diverged, on a front, changes it little. None without any.
    """
    objectives = named[0].run.state.objectives
    knows_luck = all(side.run.state.knows_seeds for side in named)
    tables = [_front_losses(side.run, knows_luck) for side in named]
    everything = np.concatenate(tables)
    if not len(everything):
        return None
    stated = reference_metrics(everything, objectives)
    (reference,) = losses([stated], objectives)
    return [hypervolume(table, reference) for table in [*tables, everything]], list(stated.values())


def _front_losses(run: Run, knows_luck: bool) -> Losses:
    """Return the losses of the front, with what is learned either without luck, or as the first seed measured it.

    Otherwise a run whose best trials were trained again would look worse than one whose best are still lucky.
    """
    state, table = run.state, []
    learned = [objective.metric for objective in state.objectives if run.info.is_learned(objective.metric)]
    for trial in state.candidates():
        metrics, first = dict(trial.metrics), trial.own_metrics
        for name in learned:
            metrics[name] = metrics[name] - state.luck(trial, name) if knows_luck else first.get(name, metrics[name])
        table.append(metrics)
    found = losses(table, state.objectives)
    return found[is_pareto_optimal(found)] if table else found


def compared_metrics(named: Sequence[Side]) -> list[str]:
    """Return the objectives, preceded by the rate if every run measured it."""
    rate = named[0].run.state.rate_metric
    has_rate = all(any(rate in t.metrics for t in side.run.state.trials.values()) for side in named)
    return list(dict.fromkeys([*([rate] if has_rate else []), *(o.metric for o in named[0].run.state.objectives)]))


def shared(named: Sequence[Side], metric: str) -> list[Shared]:
    """Return the configurations that at least two runs measured, largest value in the first of these runs first.

    For a metric that training does not change, configurations are equal if all settings that affect it are equal. For
    a learned metric all settings must be equal and the trials complete. Settings that a run leaves out have the
    defaults that it recorded. A trial that did not reach the target of the metric is left out.
    """
    differing = _differing_defaults(named)
    learned = named[0].run.info.is_learned(metric)
    runs = {side.letter: side.run for side in named}
    ignored = set() if learned else named[0].run.info.without_effect(metric)
    found: dict[str, dict[str, list[Trial]]] = defaultdict(lambda: defaultdict(list))
    for side in named:
        defaults = {name: side.run.info.defaults.get(name) for name in differing}
        for trial in side.run.state.trials.values():
            counts = trial.state == "complete" or not (learned or trial.state == "failed")
            is_known = math.isfinite(trial.own_metrics.get(metric, math.nan))
            if counts and is_known and side.run.state.is_reached(trial, metric):
                config = {**defaults, **trial.config}
                key = repr(sorted((name, value) for name, value in config.items() if name not in ignored))
                found[key][side.letter].append(trial)
    made = [
        Shared(
            {name: value for name, value in next(iter(by.values()))[0].config.items() if name not in ignored},
            {letter: _reading(runs[letter], trials, metric) for letter, trials in by.items()},
        )
        for by in found.values()
        if len(by) > 1
    ]
    return sorted(made, key=lambda each: -next(iter(each.readings.values())).value)


def _differing_defaults(named: Sequence[Side]) -> set[str]:
    """Return the settings of which these runs recorded different defaults."""
    values: dict[str, set[str]] = defaultdict(set)
    for side in named:
        for name, value in side.run.info.defaults.items():
            values[name].add(repr(value))
    return {name for name, each in values.items() if len(each) > 1}


def _reading(run: Run, trials: Sequence[Trial], metric: str) -> Reading:
    """Return the value that the run gives a metric of these trials; what they do not share is combined."""
    contended = all(trial.metrics.get("contended") for trial in trials)
    if len({trial.source(metric) for trial in trials}) == 1:
        half = run.state.half_interval(trials[0], metric)
        if half is None and metric == run.state.rate_metric:
            half = math.inf
        is_rate = not run.info.is_learned(metric)
        return Reading(trials[0].metrics[metric], half, len(trials), is_rate and contended)
    quiet = [trial for trial in trials if not trial.own_metrics.get("contended")]
    sure = [trial for trial in quiet or trials if half_interval(trial.own_metrics, metric)]
    used = sure or quiet or list(trials)
    metrics = merge_repeats(used[0].own_metrics, [trial.own_metrics for trial in used[1:]])
    half = half_interval(metrics, metric) if sure else run.state.half_interval(used[0], metric)
    value = metrics[metric] if sure else fmean(trial.own_metrics[metric] for trial in used)
    return Reading(value, half, len(used), not quiet)


def mean_ratio(rows: Iterable[Shared], letter: str, base: str) -> tuple[float, float, float, int] | None:
    """Geometric mean, minimum, maximum and number of the ratios over the configurations that both runs measured."""
    ratios = [row.ratio(letter, base)[0] for row in rows if {letter, base} <= row.readings.keys()]
    if not ratios or not all(ratio > 0 for ratio in ratios):
        return None
    return math.exp(fmean(map(math.log, ratios))), min(ratios), max(ratios), len(ratios)


def differences(named: Sequence[Side]) -> tuple[dict[str, list[str]], list[str]]:
    """Return the facts that differ, with one value per run, and the names of those that are equal, grouped by kind."""
    differing = sorted(_differing_defaults(named))
    facts = [{**_facts(side.run), **_defaults(side.run, differing)} for side in named]
    names = list(dict.fromkeys(name for each in facts for name in each))
    cells = {name: [each.get(name, "–") for each in facts] for name in names}
    different = {name: values for name, values in cells.items() if len(set(values)) > 1}
    kinds = [
        f"{'other ' * any(_kind(d) == _kind(n) for d in different)}{_kind(n)}" for n in names if n not in different
    ]
    return different, list(dict.fromkeys(kinds))


def _kind(name: str) -> str:
    """`versions` for `torch's version`."""
    if name.endswith("'s version"):
        return "versions"
    return {"searched": "searched parameters", "fixed": "fixed settings"}.get(name.partition(" ")[0], name)


def other_machines(named: Sequence[Side]) -> bool:
    """Return whether the runs' machines differ in anything that affects a rate."""
    return len({replace(side.run.info.machine, shm_gib=None) for side in named}) > 1


def other_shares(named: Sequence[Side]) -> bool:
    """Return whether different numbers of trials share the machine in these runs."""
    return len({side.run.info.concurrent_trials for side in named}) > 1


def not_comparable(named: Sequence[Side]) -> list[str]:
    """Return the reasons why accuracies of these runs cannot be compared; empty if they can."""
    data = [side.run.info.data.description for side in named]
    epochs = [plural(_epochs(side.run), "epoch") for side in named]
    reasons = []
    for values, reason, separator in ((data, "the data differ", "; "), (epochs, "the epochs differ", ", ")):
        if len(set(values)) > 1:
            each = separator.join(f"{side.letter}: {value}" for side, value in zip(named, values, strict=True))
            reasons.append(f"{reason} ({each})")
    return reasons


def _epochs(run: Run) -> int:
    return max((trial.epochs for trial in run.state.candidates()), default=0)


def _defaults(run: Run, names: Sequence[str]) -> dict[str, str]:
    """Return the recorded defaults of settings that the run leaves out, as text."""
    defaults, stated = run.info.defaults, {*run.info.parameters, *run.info.fixed}
    return {f"default {name}": format_setting(defaults[name]) for name in names if name in {*defaults} - stated}


def _facts(run: Run) -> dict[str, str]:
    """Conditions of a run by name, as text."""
    info, machine, space = run.info, run.info.machine, cast(dict[str, Any], run.info.space or {})
    known = plural(len(run.state.known), "measurement") if run.state.known else "nothing"
    budget = run.state.budget.model_dump(exclude_none=True, exclude_unset=True)
    return {
        "processor": machine.cpu_name,
        "cores": f"{machine.cores}",
        "memory": f"{machine.memory_gib:.0f} GiB",
        "GPUs": ", ".join(map(str, machine.gpus)) or "none",
        "nodes": f"{machine.num_nodes}",
        "commit": info.commit or "unknown",
        **{f"{name}'s version": version for name, version in info.versions.items()},
        "training file": f"{Path(info.trainable).name} (sha256 {info.source[:12]})" if info.source else "none",
        "data": info.data.description,
        "epochs": f"{_epochs(run)}",
        "constraints": ", ".join(info.constraints) or "none",
        "evaluation": info.evaluation,
        "searcher": space.get("searcher", {}).get("name", "–"),
        "stopping": space.get("stopping", {}).get("name", "–"),
        "trials at a time": f"{info.concurrent_trials}",
        "baseline": ", ".join(f"{n}={format_setting(v)}" for n, v in space.get("baseline", {}).items()) or "none",
        "seed": f"{'–' if info.seed is None else info.seed}",
        "budget": ", ".join(f"{key} {value}" for key, value in budget.items()) or "none",
        "left out": "; ".join(info.left_out) or "nothing",
        "known of earlier runs": known,
        **{
            f"searched {name}": ", ".join(map(str, stated["values"]))
            if "values" in stated
            else f"{format_number(stated['min'])} to {format_number(stated['max'])}"
            for name, stated in info.parameters.items()
        },
        **{f"fixed {name}": f"{value}" for name, value in info.fixed.items()},
    }
