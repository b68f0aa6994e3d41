"""Several runs side by side: their fronts together, the rate of each configuration in each, and what differs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from search.front.bearing import is_learned, without_bearing
from search.front.objective import Objective, losses
from search.front.pareto import hypervolume, is_pareto_optimal, reference_point
from search.front.repeats import merged
from search.outcome import InputError
from search.record.history import Trial
from search.results import Run
from search.text.wording import count, duration, half_width, listed, number

LETTERS = "ABCDEFGH"
RATE = "images_per_second"
MACHINE = ("cpu_name", "cores", "memory_gib", "gpus", "num_nodes")


@dataclass(frozen=True)
class Side:
    """One of the runs, and the letter that it goes by."""

    letter: str
    run: Run


@dataclass(frozen=True)
class Reading:
    """What one run measured of a metric for one configuration; `half`: of the 95% interval, None: not known."""

    value: float
    half: float | None
    trials: int
    disturbed: bool  # whether something else took the cores in all of them


@dataclass(frozen=True)
class Shared:
    """A configuration, as far as it bears on a metric, that several runs measured; readings by letter."""

    config: dict[str, Any]
    readings: dict[str, Reading]

    def ratio(self, letter: str, base: str) -> tuple[float, float | None]:
        """The one by the other, and half of its 95% interval."""
        one, other = self.readings[letter], self.readings[base]
        ratio = one.value / other.value
        if one.half is None or other.half is None:
            return ratio, None
        return ratio, ratio * math.hypot(one.half / one.value, other.half / other.value)


def sides(runs: Sequence[Run]) -> list[Side]:
    """The runs with their letters.

    Raises:
        InputError: fewer than two, too many, or they do not search the same thing towards the same objectives.
    """
    if not 2 <= len(runs) <= len(LETTERS):
        raise InputError(f"found {len(runs)} run{'s' * (len(runs) != 1)}; expected two to {len(LETTERS)}")
    named = [Side(letter, run) for letter, run in zip(LETTERS, runs, strict=False)]
    first = runs[0]
    for side in named[1:]:
        if side.run.info["trainable"] != first.info["trainable"]:
            what = f"trains {side.run.info['trainable']}, and A {first.info['trainable']}"
            raise InputError(f"{side.letter} ({side.run.name}) {what}; only runs of one trainable can be compared")
        if _goals(side.run) != _goals(first):
            what = f"is to {_aims(side.run)}, and A to {_aims(first)}"
            raise InputError(
                f"{side.letter} ({side.run.name}) {what}; only runs with the same objectives can be compared"
            )
    return named


def _goals(run: Run) -> set[tuple[str, str]]:
    return {(o.metric, o.goal) for o in run.history.objectives}


def _aims(run: Run) -> str:
    return listed([f"{o.goal} {o.metric}" for o in run.history.objectives])


# --- fronts -----------------------------------------------------------------------------------------------------------


def objectives_of(named: Sequence[Side]) -> list[Objective]:
    """In the order of the first."""
    return named[0].run.history.objectives


def together(named: Sequence[Side]) -> list[tuple[Side, Trial]]:
    """The points of all fronts that no point of another dominates, best of the first objective first."""
    points = [(side, trial) for side in named for trial in side.run.history.front()]
    table = losses([trial.metrics for _, trial in points], objectives_of(named))
    optimal = is_pareto_optimal(table)
    return [points[i] for i in np.lexsort(table.T[::-1]) if optimal[i]]


def hypervolumes(named: Sequence[Side]) -> tuple[list[float], list[float]] | None:
    """That of each run below one reference point, then that of all together; the point in the metrics' units.

    The reference point is the worst that any run compared, and a tenth of the range beyond. None: nothing to compare.
    """
    objectives = objectives_of(named)
    tables = [losses([t.metrics for t in side.run.history.candidates()], objectives) for side in named]
    everything = np.concatenate(tables)
    if not len(everything):
        return None
    reference = reference_point(everything)
    stated = [o.loss(float(bound)) for o, bound in zip(objectives, reference, strict=True)]
    return [hypervolume(table, reference) for table in [*tables, everything]], stated


# --- the same configuration in several runs ---------------------------------------------------------------------------


def compared_metrics(named: Sequence[Side]) -> list[str]:
    """The rate, and every objective."""
    objectives = [o.metric for o in objectives_of(named)]
    return list(dict.fromkeys([*([RATE] if _everywhere(named, RATE) else []), *objectives]))


def _everywhere(named: Sequence[Side], metric: str) -> bool:
    return all(any(metric in t.metrics for t in side.run.history.trials.values()) for side in named)


def shared(named: Sequence[Side], metric: str) -> list[Shared]:
    """Configurations that two runs or more measured, by their value in the first that has them, largest first.

    Of a metric that training does not change, configurations are the same that differ in what bears on training alone;
    of another one, all settings must be the same and the trial complete.
    """
    learned = is_learned(named[0].run.info, metric)
    runs = {side.letter: side.run for side in named}
    ignored = set() if learned else without_bearing(named[0].run.info, metric)
    found: dict[str, dict[str, list[Trial]]] = defaultdict(lambda: defaultdict(list))
    for side in named:
        for trial in side.run.history.trials.values():
            if math.isfinite(trial.metrics.get(metric, math.nan)) and (trial.state == "complete" or not learned):
                found[_key(trial.config, ignored)][side.letter].append(trial)
    made = [
        Shared(
            {name: value for name, value in next(iter(by.values()))[0].config.items() if name not in ignored},
            {letter: _reading(runs[letter], trials, metric) for letter, trials in by.items()},
        )
        for by in found.values()
        if len(by) > 1
    ]
    return sorted(made, key=lambda each: -next(iter(each.readings.values())).value)


def _key(config: Mapping[str, Any], ignored: set[str]) -> str:
    return repr(sorted((name, value) for name, value in config.items() if name not in ignored))


def _reading(run: Run, trials: Sequence[Trial], metric: str) -> Reading:
    """One figure of them all: of undisturbed ones, of those with an interval, where there are any."""
    quiet = [trial for trial in trials if not trial.metrics.get("disturbed")]
    sure = [trial for trial in quiet or trials if half_width(trial.metrics, metric) is not None]
    used = sure or quiet or list(trials)
    metrics = merged(used[0].metrics, [trial.metrics for trial in used[1:]])
    half = half_width(metrics, metric) if sure else 1.96 * run.history.deviation(used[0], metric)
    value = metrics[metric] if sure else fmean(trial.metrics[metric] for trial in used)
    return Reading(value, half or None, len(used), not quiet)


def mean_ratio(rows: Iterable[Shared], letter: str, base: str) -> tuple[float, float, float, int] | None:
    """Geometric mean of the ratio over the configurations that both have, its least, its greatest, and their number."""
    ratios = [row.ratio(letter, base)[0] for row in rows if {letter, base} <= row.readings.keys()]
    if not ratios or min(ratios) <= 0:
        return None
    return math.exp(fmean(map(math.log, ratios))), min(ratios), max(ratios), len(ratios)


# --- what differs -----------------------------------------------------------------------------------------------------


def differences(named: Sequence[Side]) -> tuple[dict[str, list[str]], list[str]]:
    """What is not the same in all runs, each run's in turn; and the names of what is the same, kinds together."""
    facts = [_facts(side.run) for side in named]
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
    """Whether the runs were made on machines that differ in anything that moves a rate."""
    return len({repr([side.run.info["machine"].get(key) for key in MACHINE]) for side in named}) > 1


def not_comparable(named: Sequence[Side]) -> list[str]:
    """Why accuracies of one run say nothing beside those of another; empty: they do."""
    data = [side.run.info["data"]["description"] for side in named]
    epochs = [_fidelity(side.run) for side in named]
    said = []
    if len(set(data)) > 1:
        said.append(f"they are of other pictures ({'; '.join(_each(named, data))})")
    if len(set(epochs)) > 1:
        times = ", ".join(_each(named, [count(n, "epoch") for n in epochs]))
        said.append(f"they were trained for different times ({times})")
    return said


def _each(named: Sequence[Side], words: Sequence[str]) -> list[str]:
    return [f"{side.letter}: {word}" for side, word in zip(named, words, strict=True)]


def _fidelity(run: Run) -> int:
    return max((trial.epochs for trial in run.history.candidates()), default=0)


def _facts(run: Run) -> dict[str, str]:
    """What may differ between two runs, by its name, in words."""
    info, machine, space = run.info, run.info["machine"], run.info.get("space", {})
    gpus = [f"{gpu['name']} ({gpu['memory_gib']:.0f} GiB)" for gpu in machine["gpus"]]
    budget = {key: value for key, value in run.history.budget.items() if value is not None}
    return {
        "processor": machine["cpu_name"],
        "cores": f"{machine['cores']}",
        "memory": f"{machine['memory_gib']:.0f} GiB",
        "GPUs": ", ".join(gpus) or "none",
        "nodes": f"{machine.get('num_nodes', 1)}",
        "commit": info.get("commit") or "unknown",
        **{f"{name}'s version": version for name, version in info["versions"].items()},
        "data": info["data"]["description"],
        "epochs": f"{_fidelity(run)}",
        "constraints": ", ".join(info.get("constraints", [])) or "none",
        "evaluation": space.get("evaluation", "coupled"),
        "searcher": space.get("searcher", {}).get("name", "–"),
        "seed": f"{info.get('seed', '–')}",
        "budget": ", ".join(f"{key} {value}" for key, value in budget.items()) or "none",
        "left out": "; ".join(info.get("left_out", [])) or "nothing",
        **{f"searched {name}": _range(stated) for name, stated in space.get("parameters", {}).items()},
        **{f"fixed {name}": f"{value}" for name, value in space.get("fixed", {}).items()},
    }


def _range(stated: Mapping[str, Any]) -> str:
    if "values" in stated:
        return ", ".join(map(str, stated["values"]))
    return f"{number(stated['min'])} to {number(stated['max'])}"


def wall_time(run: Run) -> str:
    """How long the run took so far."""
    return duration(run.history.active_seconds())
