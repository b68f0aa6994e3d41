"""Effect of strategies and of the number of processes: rates, scaling efficiency, and causes of lost efficiency."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from search.front.differences import Estimate
from search.front.roles import rate_unit
from search.record.trial import Trial
from search.report.causes import stage_milliseconds
from search.report.sweeps import (
    Ratio,
    alike,
    by_intervals,
    group_heading,
    measured,
    present,
    rate,
    told_ratio,
    unmeasured,
    utilization,
)
from search.text.configurations import format_setting, format_settings
from search.text.markdown import format_tables, wrap
from search.text.numbers import format_number, format_percent, plural
from trainables.contract import Strategy

MOST_TABLES = 3
SCALES = 0.95  # efficiency above which no cause is given
LEAST_SHARE = 0.1  # of the lost time, for a cause to be named
UNEVEN = 1.1  # smallest ratio of the busiest process to the mean that is mentioned


def processes(trial: Trial) -> int | None:
    """Return the number of a trial's processes; None: its configuration does not say."""
    size = trial.config.get("world_size")
    return size if type(size) is int else None


def _counted(trial: Trial, strategies: Mapping[str, Strategy]) -> Trial:
    """Return the trial with its `world_size` where the strategy decides it."""
    known = strategies.get(f"{trial.config.get('strategy')}")
    return replace(trial, config={**trial.config, "world_size": 1}) if known and known.one_process else trial


def _own_settings(strategies: Mapping[str, Strategy]) -> list[str]:
    """Return the settings of single strategies. Trials that differ in these alone do the same work."""
    return [*dict.fromkeys(name for each in strategies.values() for name in each.settings), "placement"]


def strategy_tables(
    trials: Sequence[Trial],
    varying: Sequence[str],
    strategies: Mapping[str, Strategy],
    without_effect: Collection[str] = (),
    ratio: Ratio = by_intervals,
) -> list[str]:
    """Return rate, share of communication, memory and imbalance by strategy, where the run varied the strategy.

    `ratio`: the logarithm of the ratio of the rates of two trials.
    """
    blocks: list[str] = []
    own = _own_settings(strategies)
    names = ("strategy", "world_size", *own)

    def single_first(trial: Trial) -> tuple[bool, str, int, str]:
        strategy = str(trial.config.get("strategy"))
        return strategy != "single", strategy, processes(trial) or 0, repr(_own(trial, own))

    ended = [t for t in trials if "strategy" in t.config and (measured(t) or t.state in ("infeasible", "failed"))]
    for group in alike([_counted(t, strategies) for t in ended], names, without_effect)[:MOST_TABLES]:
        ordered = sorted(group, key=single_first)
        rows = list(filter(measured, ordered))
        if len({t.config["strategy"] for t in rows}) > 1:
            best, second = sorted(rows, key=lambda t: -t.rate)[:2]
            lead = ratio(best, second)
            notes = [f"Fastest: {_named(best, own)}, {told_ratio(lead)} times the rate of {_named(second, own)}."]
            if lead is None or lead.low <= 0 <= lead.high:
                notes = [f"{_named(best, own)} and {_named(second, own)} cannot be told apart: {told_ratio(lead)}."]
            notes += [f"{_named(t, own)} {unmeasured(t)}" for t in ordered if not measured(t)]
            single = next((t for t in rows if t.config["strategy"] == "single"), None)
            differing = [name for name in own if len({repr(t.config.get(name)) for t in rows if name in t.config}) > 1]
            counts = [processes(t) or 1 for t in rows]
            first = {
                "strategy": [f"{t.config['strategy']}{f' x{n}' * (n > 1)}" for t, n in zip(rows, counts, strict=True)],
                "settings": [format_settings(t.config, differing) for t in rows],
            }
            rates = {
                rate_unit(rows[0].rate_metric): [rate(t) for t in rows],
                "of single": [f"{t.rate / single.rate:.2f}x" if single else "" for t in rows],
                "comm.": [format_percent(communication(t)) for t in rows],
            }
            tables = format_tables(present(first), present(rates), _devices(rows))
            blocks += [*group_heading(rows, varying, names), *tables, *map(wrap, notes)]
    return [*blocks, wrap(COLUMNS)] if blocks else []


COLUMNS = (
    "comm.: share of a step spent in communication or in waiting for other processes. GiB: peak memory. uneven: memory "
    "of the process or GPU with the most, over the mean. uneven work: utilization of the busiest, over the mean."
)


def _own(trial: Trial, own: Sequence[str]) -> dict[str, Any]:
    return {name: trial.config[name] for name in own if name in trial.config}


def _devices(rows: Sequence[Trial]) -> dict[str, list[str]]:
    """Return columns for memory, imbalance, nodes, bottleneck and utilization."""
    names = {"GiB": "peak_memory_gib", "uneven": "memory_imbalance", "uneven work": "utilization_imbalance"}
    columns = {label: [format_number(t.metrics.get(name, math.nan)) for t in rows] for label, name in names.items()}
    columns["nodes"] = [f"{t.metrics['nodes']:.0f}" if "nodes" in t.metrics else "" for t in rows]
    return {**present(columns), **utilization(rows)}


def communication(trial: Trial) -> float:
    """Return the share of a step spent in communication or in waiting for other processes; NaN: not measured."""
    row = stage_milliseconds(trial)
    total = sum(row.values())
    return row.get("communicate", 0.0) / total if total else math.nan


def _named(trial: Trial, own: Sequence[str]) -> str:
    number = processes(trial) or 1
    several = f" on {number} processes" if number > 1 else ""
    settings = ", ".join(f"{name}={format_setting(value)}" for name, value in _own(trial, own).items())
    return f"{trial.config.get('strategy', 'single')}{several}" + (f" ({settings})" if settings else "")


def efficiency(rate_of_n: float, n: int, rate_of_one: float) -> float:
    """Return rate(n) / (n * rate(1))."""
    return rate_of_n / (n * rate_of_one)


def excess(stages_of_n: Mapping[str, float], n: int, stages_of_one: Mapping[str, float]) -> dict[str, float]:
    """Return, by stage, the time of a step of n processes minus 1/n of the time of one process, in the same unit.

    The sum is the whole difference to an efficiency of one.
    """
    names = dict.fromkeys([*stages_of_n, *stages_of_one])
    return {name: stages_of_n.get(name, 0.0) - stages_of_one.get(name, 0.0) / n for name in names}


def scaling_tables(
    trials: Sequence[Trial],
    varying: Sequence[str],
    cores: int,
    gpus: int,
    strategies: Mapping[str, Strategy],
    without_effect: Collection[str] = (),
    ratio: Ratio = by_intervals,
) -> list[str]:
    """Return rate and efficiency of a strategy by its number of processes, where the run varied it, and the losses.

    `cores` and `gpus` are those of the machine, `ratio` as for `strategy_tables`. The reference is one process with the
    same strategy, else `single`.
    """
    blocks: list[str] = []
    own = _own_settings(strategies)
    known = [t for t in (_counted(t, strategies) for t in trials) if measured(t) and processes(t)]
    for group in alike(known, ("strategy", "world_size", *own), without_effect)[:MOST_TABLES]:
        by_strategy: dict[str, list[Trial]] = defaultdict(list)
        for trial in sorted(group, key=lambda t: processes(t) or 0):
            by_strategy[f"{trial.config.get('strategy', 'single')} {_own(trial, own)}"].append(trial)
        for rows in by_strategy.values():
            single = [t for t in group if t.config.get("strategy") == "single"]
            alone = next((t for t in [*rows, *single] if processes(t) == 1), None)
            if len({processes(t) for t in rows}) < 2 or alone is None:
                continue
            others = [t for t in rows if t is not alone]
            rows, base = [alone, *others], alone.rate
            columns = {
                rate_unit(rows[0].rate_metric): [rate(t) for t in rows],
                "times one": [f"{t.rate / base:.2f}x" for t in rows],
                "efficiency": [format_percent(efficiency(t.rate, processes(t) or 1, base)) for t in rows],
                "comm.": [format_percent(communication(t)) for t in rows],
            }
            tables = format_tables({"processes": [str(processes(t)) for t in rows]}, present(columns), _devices(rows))
            reasons = "\n".join(wrap(_losses(trial, alone, cores, gpus, ratio(trial, alone)), "  ") for trial in others)
            blocks += [_heading(alone, others, varying), *tables, reasons]
    legend = f"Efficiency is the rate of n processes over n times the rate of one. {COLUMNS}"
    return [*blocks, wrap(legend)] if blocks else []


def _heading(alone: Trial, rows: Sequence[Trial], varying: Sequence[str]) -> str:
    config = rows[0].config
    names = [n for n in varying if n in config and n not in ("strategy", "world_size")]
    settings = "".join(f", {name}={format_setting(config[name])}" for name in names)
    base, strategy = (each.get("strategy", "single") for each in (alone.config, config))
    reference = "" if base == strategy else f"; the reference of one process is `{base}`"
    what = f"Strategy `{strategy}`" if "strategy" in config else "Processes of the training"
    return wrap(f"{what}{settings}{reference}:")


def _losses(trial: Trial, alone: Trial, cores: int, gpus: int, ratio: Estimate | None) -> str:
    """Explain the lost efficiency of n processes by cores and stages, if it is surely lost; `ratio`: of the rates."""
    n = processes(trial) or 1
    fraction = efficiency(trial.rate, n, alone.rate)
    text = [f"- {n} processes: efficiency {format_percent(fraction)}."]
    if fraction >= SCALES:
        return f"{text[0]} Nothing to explain."
    if ratio is not None and ratio.high > math.log(SCALES * n):
        return f"{text[0]} That is not surely a loss: the rates are not known well enough."
    if not gpus:
        threads, threads_alone = (trial.config.get("threads") or max(1, cores // size) for size in (n, 1))
        if threads < threads_alone:
            text.append(f"They share the cores: each has {plural(threads, 'thread')}, one alone had {threads_alone}.")
        elif n * threads > cores:
            text.append(f"{n * threads} threads share {plural(cores, 'core')}.")
    of_n, of_one = stage_milliseconds(trial), stage_milliseconds(alone)
    if not of_n or not of_one:
        return " ".join([*text, "Its stages were not measured."])
    step, ideal = format_number(sum(of_n.values())), format_number(sum(of_one.values()) / n)
    text.append(f"A step takes {step} ms; {_part(n)} of the step of one process would be {ideal} ms.")
    lost = {name: max(0.0, milliseconds) for name, milliseconds in excess(of_n, n, of_one).items()}
    total = sum(lost.values())
    causes = [
        f"{format_percent(lost[name] / total)} of the difference {_cause(name, trial, n, of_n, of_one)}"
        for name in sorted(lost, key=lambda name: -lost[name])
        if total and lost[name] / total >= LEAST_SHARE
    ]
    text += [f"{'; '.join(causes)}."] * bool(causes)
    uneven = trial.metrics.get("utilization_imbalance", math.nan)
    if uneven > UNEVEN:
        text.append(f"The busiest is {uneven:.2f} times as busy as the mean: the others wait for it.")
    return " ".join(text)


def _cause(name: str, trial: Trial, n: int, of_n: Mapping[str, float], of_one: Mapping[str, float]) -> str:
    """Explain why a stage of n processes takes longer than 1/n of the stage of one."""
    match name:
        case "communicate":
            share = of_n[name] / sum(of_n.values())
            return f"is communication: {format_percent(share)} of each step waits for other processes"
        case "load":
            return "is input: batches do not arrive n times as fast"
        case "transfer":
            return "is copying: the devices share the link from the host"
        case "update":
            return "is the update: each process updates all its weights, however small its share of the batch"
    slower = f", {n * of_n[name] / of_one[name]:.2f} times as long per sample" if of_one.get(name) else ""
    size = trial.config.get("batch_size")
    samples = f"{size / n:.0f} of {size}" if type(size) is int else f"{_part(n)} of the"
    return f"is {name}{slower}: each process has {samples} samples of a batch to fill its cores or device with"


def _part(n: int) -> str:
    return "half" if n == 2 else f"1/{n}"


def nodes_used(trials: Iterable[Trial], num_nodes: int) -> str:
    """Describe the numbers of nodes that trials used, by placement; empty on a single node."""
    used: dict[str, set[int]] = defaultdict(set)
    for trial in trials:
        if "nodes" in trial.metrics:
            used[str(trial.config.get("placement", "pack"))].add(int(trial.metrics["nodes"]))
    placed = [f"placement {name}: trials on {' or '.join(map(str, sorted(used[name])))}" for name in sorted(used)]
    return "; ".join([f"{num_nodes} in the cluster", *placed]) if num_nodes > 1 else ""
