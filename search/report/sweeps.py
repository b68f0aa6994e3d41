"""What one setting does: trials that differ in it alone, side by side, and where a larger batch no longer pays."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from search.record.history import Trial
from search.report.causes import bound, stages, verdicts
from search.text.markdown import tables, wrapped
from search.text.wording import half_width, number, percent, setting, spread

RATE = "images_per_second"
LOADING = ("loader", "num_workers", "pin_memory")
LEARNING = ("learning_rate", "momentum", "weight_decay", "label_smoothing", "seed")  # no step takes longer by these
MOST_TABLES = 3  # of one kind
TIE = 0.03  # of a rate whose interval is not known, that it may be off by
SLOWER = 1.05  # times as long is worth a word


def alike(trials: Iterable[Trial], names: Sequence[str]) -> list[list[Trial]]:
    """Groups of trials that differ in `names` only, as far as a step's time is concerned; the largest group first.

    Of trials with equal values of `names` the one with the middle rate stands for all.
    """
    groups: dict[str, dict[str, list[Trial]]] = defaultdict(lambda: defaultdict(list))
    for trial in trials:
        others = {k: v for k, v in sorted(trial.config.items()) if k not in (*names, *LEARNING)}
        groups[repr(others)][repr([trial.config.get(name) for name in names])].append(trial)
    chosen = [[_middle(same) for same in group.values()] for group in groups.values() if len(group) > 1]
    return sorted(chosen, key=len, reverse=True)


def _middle(trials: list[Trial]) -> Trial:
    ordered = sorted(filter(measured, trials), key=lambda t: t.metrics[RATE])
    return ordered[len(ordered) // 2] if ordered else trials[0]


def measured(trial: Trial) -> bool:
    """Whether it has a rate to compare."""
    return trial.state == "complete" and 0 < trial.metrics.get(RATE, math.nan) < math.inf


def _number_of(trial: Trial, name: str) -> bool:
    return type(trial.config.get(name)) in (int, float)


def _sorted(group: Sequence[Trial], names: Sequence[str]) -> list[Trial]:
    """By these settings; values of several types, which have no order, by type."""
    return sorted(group, key=lambda t: [(type(t.config.get(name)).__name__, t.config.get(name)) for name in names])


def which(group: Sequence[Trial], varying: Iterable[str], names: Sequence[str]) -> list[str]:
    """What sets this group apart from the others."""
    config = group[0].config
    settings = [f"{n}={setting(config[n])}" for n in varying if n in config and n not in (*names, *LEARNING)]
    return [wrapped(f"With {', '.join(settings)}:")] if settings else []


# --- loaders ----------------------------------------------------------------------------------------------------------


def loader_tables(trials: Sequence[Trial], varying: Sequence[str]) -> list[str]:
    """Stage times and rate by loader, number of loader processes and pinned memory, where the run varied these."""
    blocks = []
    for group in alike([t for t in trials if measured(t) and stages(t)], LOADING)[:MOST_TABLES]:
        rows = _sorted(group, _order(group))
        slowest = min(rows, key=lambda trial: trial.metrics[RATE])
        words = [wrapped(_loader_words(rows)), *verdicts([slowest])]
        blocks += [*which(rows, varying, LOADING), *_loader_table(rows), *words]
    return ["Milliseconds per step.", *blocks] if blocks else []


def _order(group: Sequence[Trial]) -> list[str]:
    """The names that differ in the group, so that the number of processes varies fastest."""
    names = ("loader", "pin_memory", "num_workers")
    return [name for name in names if len({repr(t.config.get(name)) for t in group}) > 1]


def _loader_table(group: Sequence[Trial]) -> list[str]:
    rows = [stages(trial) for trial in group]
    settings = {name: [setting(t.config[name]) if name in t.config else "–" for t in group] for name in _order(group)}
    times = {
        "load": [number(row.get("load", math.nan)) for row in rows],
        "forward": [number(row.get("forward", math.nan)) for row in rows],
        "backward and update": [number(_sum(row, "backward", "communicate", "update")) for row in rows],
        "images/s": [rate(trial) for trial in group],
    }
    return tables(settings, times, utilization(group))


def _loader_words(group: Sequence[Trial]) -> str:
    """The fastest, and what loader processes cost the training beside them."""
    ranked = sorted(group, key=lambda t: t.metrics[RATE])
    words = (
        f"Fastest: {_named(ranked[-1], group)}, {_times(ranked[-1], ranked[0])} the rate of {_named(ranked[0], group)}."
    )
    alone = [t for t in group if not t.config.get("num_workers")]
    beside = [t for t in group if t.config.get("num_workers")]
    if not alone or not beside:
        return words
    before, slow = min(map(_training, alone)), max(beside, key=_training)
    if _training(slow) > SLOWER * before > 0:
        words += (
            f" With {_named(slow, group)}, forward and backward take {_training(slow) / before:.2f} times as long as "
            "without loader processes, which take the cores that training needs."
        )
    return words


def _training(trial: Trial) -> float:
    return _sum(stages(trial), "forward", "backward")


def _named(trial: Trial, group: Sequence[Trial]) -> str:
    return ", ".join(f"{n}={setting(trial.config[n])}" for n in _order(group) if n in trial.config)


# --- batch size -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    """A rate, in images per second, and what it may be off by; None: that is not known."""

    batch_size: float
    rate: float
    half_width: float | None = None

    def differs_from(self, other: Point) -> bool:
        """Whether the rates differ by more than both may be off."""
        return abs(self.rate - other.rate) > math.hypot(self._off, other._off)

    @property
    def _off(self) -> float:
        return TIE * self.rate if self.half_width is None else self.half_width


def point_of(trial: Trial) -> Point:
    """Of a measured trial."""
    return Point(trial.config.get("batch_size", math.nan), trial.metrics[RATE], half_width(trial.metrics, RATE))


def saturation(points: Sequence[Point]) -> Point | None:
    """The smallest batch than which no larger one is faster beyond doubt; None: the largest is faster than all."""
    ordered = sorted(points, key=lambda point: point.batch_size)
    for i, point in enumerate(ordered[:-1]):
        if not any(larger.rate > point.rate and larger.differs_from(point) for larger in ordered[i + 1 :]):
            return point
    return None


def batch_tables(trials: Sequence[Trial], varying: Sequence[str]) -> list[str]:
    """Rate, memory and utilization by batch size, where the run varied it, and where a larger one stops to pay."""
    blocks = []
    ended = [t for t in trials if (measured(t) or t.state == "infeasible") and _number_of(t, "batch_size")]
    for group in alike(ended, ["batch_size"])[:MOST_TABLES]:
        rows = _sorted(group, ["batch_size"])
        if sum(map(measured, rows)) > 1:
            blocks += [*which(rows, varying, ["batch_size"]), *_batch_table(rows), *_batch_words(rows)]
    return blocks


def _batch_table(group: Sequence[Trial]) -> list[str]:
    rates = [trial.metrics[RATE] if measured(trial) else math.nan for trial in group]
    gains = ["", *(_ratio(after, before) for before, after in itertools.pairwise(rates))]
    figures = {
        "images/s": [rate(trial) for trial in group],
        "gain": gains,
        "memory (GiB)": [number(trial.metrics.get("peak_memory_gib", math.nan)) for trial in group],
    }
    return tables(
        {"batch_size": [setting(t.config["batch_size"]) for t in group]}, present(figures), utilization(group)
    )


def _batch_words(group: Sequence[Trial]) -> list[str]:
    """Where it saturates and why, and which batches did not run."""
    runs = [trial for trial in group if measured(trial)]
    points = [point_of(trial) for trial in runs]
    point = saturation(points)
    refused = [
        f"batch_size {setting(t.config['batch_size'])} did not run: {t.reason}" for t in group if not measured(t)
    ]
    if point is None:
        text = [f"Not saturated: batch_size {setting(points[-1].batch_size)} is faster than all smaller ones."]
    else:
        best = max((p for p in points if p.batch_size > point.batch_size), key=lambda p: p.rate)
        tie = "" if best.differs_from(point) else ", a tie"
        text = [
            f"Saturated at batch_size {setting(point.batch_size)}: of the larger ones {setting(best.batch_size)} is "
            f"the fastest, at {best.rate / point.rate:.2f} times its rate{tie}.",
            *_why_saturated(runs[points.index(point)], runs[-1]),
        ]
    return [wrapped(" ".join(text)), *map(wrapped, refused)]


def _why_saturated(trial: Trial, largest: Trial) -> list[str]:
    """What a picture costs there, of which a larger batch shares out the last part only."""
    row, total = stages(trial), sum(stages(trial).values())
    if not total:
        return []
    parts = {
        "waiting for data": _sum(row, "load"),
        "copying": _sum(row, "transfer"),
        "forward and backward": _sum(row, "forward", "backward"),
        "update and communication": _sum(row, "update", "communicate"),
    }
    shares = ", ".join(f"{percent(part / total)} {name}" for name, part in parts.items() if part / total >= 0.005)
    shared = parts["update and communication"] / total
    text = [
        f"Why: a picture takes {number(total / trial.config['batch_size'])} ms there: {shares}. A larger batch shares "
        f"out the update and the communication only, {percent(shared)} of it."
    ]
    each, later = (_training(t) / t.config["batch_size"] for t in (trial, largest))
    if later > SLOWER * each > 0:
        text += [
            f"At batch_size {setting(largest.config['batch_size'])} forward and backward take {later / each:.2f} times "
            "as long a picture."
        ]
    fraction = trial.metrics.get("fraction_of_ceiling", math.nan)
    return text + [f"It reaches {fraction:.0%} of the machine's ceiling."] * math.isfinite(fraction)


# --- cells ------------------------------------------------------------------------------------------------------------


def utilization(trials: Sequence[Trial]) -> dict[str, list[str]]:
    """What bound them and what was in use meanwhile, as far as it was measured; whether others took of it."""
    names = {
        "CPU": "cpu_utilization",
        "GPU": "gpu_utilization",
        "of ceiling": "fraction_of_ceiling",
    }
    columns = {label: [percent(t.metrics.get(name, math.nan)) for t in trials] for label, name in names.items()}
    columns["GPU memory (GiB)"] = [number(t.metrics.get("gpu_memory_gib", math.nan)) for t in trials]
    columns["disturbed"] = ["yes" if t.metrics.get("disturbed") else "" for t in trials]
    return present({"bound by": [bound(trial) for trial in trials], **columns})


def present(columns: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Without the columns that say nothing."""
    return {name: cells for name, cells in columns.items() if any(cell not in ("", "–") for cell in cells)}


def rate(trial: Trial) -> str:
    """With what it may be off by; a dash for none."""
    return spread(trial.metrics[RATE], half_width(trial.metrics, RATE)) if measured(trial) else "–"


def _ratio(after: float, before: float) -> str:
    return f"{after / before:.2f}x" if math.isfinite(after / before) else "–"


def _times(trial: Trial, other: Trial) -> str:
    return f"{trial.metrics[RATE] / other.metrics[RATE]:.2f} times"


def _sum(row: Mapping[str, float], *names: str) -> float:
    return sum(row.get(name, 0.0) for name in names)
