"""Effect of one setting: tables of trials that differ in it alone, and the batch size at which the rate saturates."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from search.front.differences import Estimate
from search.front.intervals import half_interval
from search.front.roles import FIRST_RATE, rate_unit
from search.record.trial import Trial
from search.report.causes import bound, stage_milliseconds, verdicts
from search.text.configurations import format_setting
from search.text.markdown import format_tables, wrap
from search.text.numbers import format_number, format_percent, format_ratio, plus_minus

LOADING = ("loader", "pin_memory", "num_workers")  # the last one varies fastest in a table
MOST_TABLES = 3  # of one kind
SLOWER = 1.05  # smallest ratio of two times that is mentioned
FASTER = 1.1  # a rate is saturated where larger batches are surely not faster than this

Ratio = Callable[[Trial, Trial], Estimate | None]


def alike(trials: Iterable[Trial], names: Sequence[str], without_effect: Collection[str] = ()) -> list[list[Trial]]:
    """Return groups of trials that differ only in `names` and in settings without effect; the largest group first.

    Trials with equal values of `names` are represented by the one with the median rate.
    """
    groups: dict[str, dict[str, list[Trial]]] = defaultdict(lambda: defaultdict(list))
    for trial in trials:
        others = {k: v for k, v in sorted(trial.config.items()) if k not in {*names, *without_effect}}
        groups[repr(others)][repr([trial.config.get(name) for name in names])].append(trial)

    def median(same: list[Trial]) -> Trial:
        ordered = sorted(filter(measured, same), key=lambda t: t.rate)
        return ordered[len(ordered) // 2] if ordered else same[0]

    chosen = [[median(same) for same in group.values()] for group in groups.values() if len(group) > 1]
    return sorted(chosen, key=len, reverse=True)


def measured(trial: Trial) -> bool:
    """Return whether the trial is complete and has a rate."""
    return trial.state == "complete" and 0 < trial.rate < math.inf


def unmeasured(trial: Trial) -> str:
    """Return why a trial that has ended has no rate, as in `failed: ...`."""
    return f"{'did not run' if trial.state == 'infeasible' else 'failed'}: {trial.reason or 'no reason is known'}"


def _sorted(group: Sequence[Trial], names: Sequence[str]) -> list[Trial]:
    """Sort by these settings; values of different types, which have no order, by type."""
    return sorted(group, key=lambda t: [(type(t.config.get(name)).__name__, t.config.get(name)) for name in names])


def group_heading(group: Sequence[Trial], varying: Iterable[str], names: Sequence[str]) -> list[str]:
    """Return a line with the settings that distinguish this group from others, if there are any."""
    config = group[0].config
    settings = [f"{n}={format_setting(config[n])}" for n in varying if n in config and n not in names]
    return [wrap(f"With {', '.join(settings)}:")] if settings else []


def by_intervals(one: Trial, other: Trial) -> Estimate:
    """Return the logarithm of the ratio of two rates by their own intervals."""
    return one.log_rate - other.log_rate


def told_ratio(ratio: Estimate | None) -> str:
    """Return a ratio of rates with its interval; a dash where it is not known."""
    return format_ratio(*ratio.ratio) if ratio else "–"


def loader_tables(
    trials: Sequence[Trial],
    varying: Sequence[str],
    without_effect: Collection[str] = (),
    ratio: Ratio = by_intervals,
) -> list[str]:
    """Return stage times and rates by loader, number of workers and pinned memory, where the run varied these.

    `ratio`: the logarithm of the ratio of the rates of two trials.
    """
    blocks = []
    profiled = [trial for trial in trials if measured(trial) and trial.stages]
    for group in alike(profiled, LOADING, without_effect)[:MOST_TABLES]:
        names = [name for name in LOADING if len({repr(t.config.get(name)) for t in group}) > 1]
        rows = _sorted(group, names)
        times = [stage_milliseconds(trial) for trial in rows]
        settings = {n: [format_setting(t.config[n]) if n in t.config else "–" for t in rows] for n in names}
        columns = {
            "load": [format_number(row.get("load", math.nan)) for row in times],
            "forward": [format_number(row.get("forward", math.nan)) for row in times],
            "backward and update": [format_number(_sum(row, "backward", "communicate", "update")) for row in times],
            rate_unit(rows[0].rate_metric): [rate(trial) for trial in rows],
        }
        tables = format_tables(settings, columns, utilization(rows))
        ranked = sorted(rows, key=lambda t: t.rate)
        named = {
            t.trial_id: ", ".join(f"{n}={format_setting(t.config[n]) if n in t.config else '–'}" for n in names)
            for t in rows
        }
        slowest, fastest = ranked[0], ranked[-1]
        lead = ratio(fastest, slowest)
        told = told_ratio(lead)
        note = f"Fastest: {named[fastest.trial_id]}, {told} times the rate of {named[slowest.trial_id]}."
        # the extremes of several, which differ by luck at two standard errors
        if lead is None or not lead.is_decided or lead.is_tie:
            note = f"The rates cannot be told apart: the highest is {told} times the lowest."
        without = [_forward_backward(t) for t in rows if not t.config.get("num_workers")]
        with_workers = [t for t in rows if t.config.get("num_workers")]
        if without and with_workers:
            slow = max(with_workers, key=_forward_backward)
            longer = _forward_backward(slow) / min(without) if min(without) > 0 else 0.0
            if longer > SLOWER:
                note += (
                    f" With {named[slow.trial_id]}, forward and backward take {longer:.2f} times as long as without "
                    "loader processes, which use cores that the training needs."
                )
        blocks += [*group_heading(rows, varying, LOADING), *tables, wrap(note), *verdicts([slowest])]
    return ["Milliseconds per step.", *blocks] if blocks else []


def _forward_backward(trial: Trial) -> float:
    return _sum(stage_milliseconds(trial), "forward", "backward")


def saturation(trials: Sequence[Trial], ratio: Ratio = by_intervals) -> Trial | None:
    """Return the trial with the smallest batch size for which no larger one is surely faster; None: not saturated."""
    ordered = sorted(trials, key=lambda trial: trial.config["batch_size"])
    for i, trial in enumerate(ordered[:-1]):
        if not any(_surely_differ(ratio(larger, trial)) and larger.rate > trial.rate for larger in ordered[i + 1 :]):
            return trial
    return None


def _surely_differ(ratio: Estimate | None) -> bool:
    return ratio is not None and not ratio.low <= 0 <= ratio.high


def batch_tables(
    trials: Sequence[Trial],
    varying: Sequence[str],
    without_effect: Collection[str] = (),
    ratio: Ratio = by_intervals,
) -> list[str]:
    """Return rate, memory and utilization by batch size, where the run varied it, and the size that saturates.

    `ratio`: the logarithm of the ratio of the rates of two trials.
    """
    blocks = []
    ended = [t for t in trials if measured(t) or t.state == "infeasible"]
    ended = [t for t in ended if type(t.config.get("batch_size")) in (int, float)]
    for group in alike(ended, ["batch_size"], without_effect)[:MOST_TABLES]:
        rows = _sorted(group, ["batch_size"])
        if sum(map(measured, rows)) < 2:
            continue
        rates = [trial.rate if measured(trial) else math.nan for trial in rows]
        ratios = [after / before for before, after in itertools.pairwise(rates)]
        columns = {
            rate_unit(rows[0].rate_metric): [rate(trial) for trial in rows],
            "gain": ["", *(f"{ratio:.2f}x" if math.isfinite(ratio) else "–" for ratio in ratios)],
            "memory (GiB)": [format_number(trial.metrics.get("peak_memory_gib", math.nan)) for trial in rows],
        }
        sizes = {"batch_size": [format_setting(t.config["batch_size"]) for t in rows]}
        tables = format_tables(sizes, present(columns), utilization(rows))
        runs = [trial for trial in rows if measured(trial)]
        if saturated := saturation(runs, ratio):
            size = saturated.config["batch_size"]
            best = max((t for t in runs if t.config["batch_size"] > size), key=lambda t: t.rate)
            larger, lead = format_setting(best.config["batch_size"]), ratio(best, saturated)
            told = told_ratio(lead)
            if lead is None or lead.high > math.log(FASTER):
                text = [
                    f"Whether the rate is saturated at batch_size {format_setting(size)} is not known: of the larger "
                    f"ones {larger} is the fastest, at {told} times its rate."
                ]
            else:
                text = [
                    f"Saturated at batch_size {format_setting(size)}: of the larger ones {larger} is the fastest, at "
                    f"{told} times its rate.",
                    *_why_saturated(saturated, runs[-1]),
                ]
        else:
            largest = format_setting(runs[-1].config["batch_size"])
            text = [f"Not saturated: batch_size {largest} is faster than all smaller ones."]
        notes = [" ".join(text)]
        refused = [t for t in rows if not measured(t)]
        notes += [f"batch_size {format_setting(t.config['batch_size'])} {unmeasured(t)}" for t in refused]
        blocks += [*group_heading(rows, varying, ["batch_size"]), *tables, *map(wrap, notes)]
    return blocks


def _why_saturated(trial: Trial, largest: Trial) -> list[str]:
    """Explain saturation by the time per sample: a larger batch shortens only the update and the communication."""
    row, total = stage_milliseconds(trial), sum(stage_milliseconds(trial).values())
    if not total:
        return []
    parts = {
        "waiting for data": _sum(row, "load"),
        "copying": _sum(row, "transfer"),
        "forward and backward": _sum(row, "forward", "backward"),
        "update and communication": _sum(row, "update", "communicate"),
    }
    fractions = {name: part / total for name, part in parts.items()}
    shares = ", ".join(f"{format_percent(part)} {name}" for name, part in fractions.items() if part >= 0.005)
    text = [
        f"Why: {one_unit(trial)} takes {format_number(total / trial.config['batch_size'])} ms there: {shares}. "
        "A larger batch reduces only the update and the communication for each, "
        f"{format_percent(fractions['update and communication'])} of the time."
    ]
    each, later = (_forward_backward(t) / t.config["batch_size"] for t in (trial, largest))
    if later > SLOWER * each > 0:
        size = format_setting(largest.config["batch_size"])
        text.append(f"At batch_size {size} forward and backward take {later / each:.2f} times as long for each.")
    fraction = trial.metrics.get("fraction_of_ceiling", math.nan)
    return text + [f"It reaches {fraction:.0%} of the machine's ceiling."] * math.isfinite(fraction)


def one_unit(trial: Trial) -> str:
    """Return `an image` or `a sample`; a sample that is counted in tokens is one all the same."""
    return "an image" if trial.rate_metric == FIRST_RATE else "a sample"


def utilization(trials: Sequence[Trial]) -> dict[str, list[str]]:
    """Return columns with the bottleneck, the utilization and the contention of each trial, as far as measured."""
    names = {"CPU": "cpu_utilization", "GPU": "gpu_utilization", "of ceiling": "fraction_of_ceiling"}
    columns = {label: [format_percent(t.metrics.get(name, math.nan)) for t in trials] for label, name in names.items()}
    columns["GPU memory (GiB)"] = [format_number(t.metrics.get("gpu_memory_gib", math.nan)) for t in trials]
    columns["contended"] = ["yes" if t.metrics.get("contended") else "" for t in trials]
    return present({"bound by": [bound(trial) for trial in trials], **columns})


def present(columns: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return the columns that have at least one value."""
    return {name: cells for name, cells in columns.items() if any(cell not in ("", "–") for cell in cells)}


def rate(trial: Trial) -> str:
    """Return the rate ± half of its interval, or a question mark; a dash where no rate was measured."""
    half = half_interval(trial.metrics, trial.rate_metric) or math.inf
    return plus_minus(trial.rate, half) if measured(trial) else "–"


def _sum(row: Mapping[str, float], *names: str) -> float:
    return sum(row.get(name, 0.0) for name in names)
