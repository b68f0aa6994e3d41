"""What strategies and more processes do: rates side by side, scaling efficiency, and why it is below one."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from search.record.history import Trial
from search.report.causes import stages
from search.report.sweeps import LEARNING, RATE, alike, measured, point_of, present, rate, utilization, which
from search.text.markdown import tables, wrapped
from search.text.wording import count, number, percent, setting, short_settings

# What belongs to one strategy or another. Trials that differ in these alone are of the same work.
OWN = ("num_microbatches", "schedule", "server", "batch_norm", "placement")
STRATEGY = ("strategy", "world_size", *OWN)
ALONE = ("single", "data_parallel")  # strategies of one process
MOST_TABLES = 3
SCALES = 0.95  # an efficiency above which no cause is worth looking for
SHARE_WORTH_SAYING = 0.1
UNEVEN = 1.1  # times the mean is what the busiest process may have before it is worth a word


def processes(trial: Trial) -> int | None:
    """How many a trial had; None: its configuration does not say."""
    if trial.config.get("strategy", "single") in ALONE:
        return 1
    size = trial.config.get("world_size")
    return size if type(size) is int else None


# --- strategies -------------------------------------------------------------------------------------------------------


def strategy_tables(trials: Sequence[Trial], varying: Sequence[str]) -> list[str]:
    """Rate, share of communication, memory and imbalance by strategy, where the run varied it; beside `single`."""
    blocks: list[str] = []
    ended = [t for t in trials if measured(t) or t.state in ("infeasible", "failed")]
    for group in alike([t for t in ended if "strategy" in t.config], STRATEGY)[:MOST_TABLES]:
        rows = sorted(filter(measured, group), key=_order)
        if len({t.config["strategy"] for t in rows}) > 1:
            refused = [f"{_named(t)} did not run: {t.reason}" for t in sorted(group, key=_order) if not measured(t)]
            words = [_strategy_words(rows), *refused]
            blocks += [*which(rows, varying, STRATEGY), *_strategy_table(rows), *map(wrapped, words)]
    return [*blocks, wrapped(COLUMNS)] if blocks else []


COLUMNS = (
    "comm.: the share of a step that waits for other processes or talks to them. GiB: memory at its peak; uneven: of "
    "the fullest process or GPU over the mean. uneven work: likewise, of the busiest."
)


def _order(trial: Trial) -> tuple[bool, str, int, str]:
    """`single` first, to compare with."""
    strategy = str(trial.config.get("strategy"))
    return strategy != "single", strategy, processes(trial) or 0, repr(_own(trial))


def _own(trial: Trial) -> dict[str, Any]:
    return {name: trial.config[name] for name in OWN if name in trial.config}


def _strategy_table(rows: Sequence[Trial]) -> list[str]:
    single = next((t for t in rows if t.config["strategy"] == "single"), None)
    own = [name for name in OWN if len({repr(t.config.get(name)) for t in rows if name in t.config}) > 1]
    first = {
        "strategy": [_with_processes(t) for t in rows],
        "settings": [short_settings(t.config, own) for t in rows],
    }
    rates = {
        "images/s": [rate(t) for t in rows],
        "of single": [f"{t.metrics[RATE] / single.metrics[RATE]:.2f}x" if single else "" for t in rows],
        "comm.": [percent(communication(t)) for t in rows],
    }
    return tables(present(first), present(rates), _devices(rows))


def _with_processes(trial: Trial) -> str:
    """`ddp x2`: narrow, for the tables that it begins have many columns."""
    number_of = processes(trial) or 1
    return f"{trial.config['strategy']}" + (f" x{number_of}" if number_of > 1 else "")


def _devices(rows: Sequence[Trial]) -> dict[str, list[str]]:
    """Memory and how unevenly it and the work are spread, nodes, and what bound them."""
    columns = {
        "GiB": "peak_memory_gib",
        "uneven": "memory_imbalance",
        "uneven work": "utilization_imbalance",
        "nodes": "nodes",
    }
    measures = {name: [number(t.metrics.get(metric, math.nan)) for t in rows] for name, metric in columns.items()}
    measures["nodes"] = [f"{t.metrics['nodes']:.0f}" if "nodes" in t.metrics else "" for t in rows]
    return {**present(measures), **utilization(rows)}


def communication(trial: Trial) -> float:
    """The share of a step that is spent waiting for other processes, or talking to them; NaN: not measured."""
    row = stages(trial)
    total = sum(row.values())
    return row.get("communicate", 0.0) / total if total else math.nan


def _strategy_words(rows: Sequence[Trial]) -> str:
    best = max(rows, key=lambda t: t.metrics[RATE])
    others = [t for t in rows if t is not best]
    second = max(others, key=lambda t: t.metrics[RATE])
    tie = "" if point_of(best).differs_from(point_of(second)) else ", a tie"
    ratio = best.metrics[RATE] / second.metrics[RATE]
    return f"Fastest: {_named(best)}, {ratio:.2f} times the rate of {_named(second)}{tie}."


def _named(trial: Trial) -> str:
    number_of = processes(trial) or 1
    several = f" on {number_of} processes" if number_of > 1 else ""
    own = ", ".join(f"{name}={setting(value)}" for name, value in _own(trial).items())
    return f"{trial.config.get('strategy', 'single')}{several}" + (f" ({own})" if own else "")


# --- scaling ----------------------------------------------------------------------------------------------------------


def efficiency(together: float, number_of: int, alone: float) -> float:
    """rate(n) / (n * rate(1))."""
    return together / (number_of * alone)


def excess(together: Mapping[str, float], number_of: int, alone: Mapping[str, float]) -> dict[str, float]:
    """By stage, how much longer a step of n processes takes than an n-th of the same step of one; same unit.

    The sum is all that keeps the efficiency below one.
    """
    names = dict.fromkeys([*together, *alone])
    return {name: together.get(name, 0.0) - alone.get(name, 0.0) / number_of for name in names}


def scaling_tables(trials: Sequence[Trial], varying: Sequence[str], cores: int, gpus: int) -> list[str]:
    """Rate and efficiency of a strategy by its number of processes, where the run varied it, and what the loss is.

    `cores` and `gpus`: of the machine. What one process does is measured with the same strategy, else with `single`.
    """
    blocks: list[str] = []
    known = [t for t in trials if measured(t) and processes(t)]
    for group in alike(known, STRATEGY)[:MOST_TABLES]:
        for rows in _by_strategy(group):
            single = [t for t in group if t.config.get("strategy") == "single"]
            alone = next((t for t in [*rows, *single] if processes(t) == 1), None)
            if len({processes(t) for t in rows}) < 2 or alone is None:
                continue
            others = [t for t in rows if t is not alone]
            reasons = "\n".join(_why(trial, alone, cores, gpus) for trial in others)
            blocks += [_heading(alone, others, varying), *_scaling_table([alone, *others], alone), reasons]
    return [*blocks, wrapped(_MEANING)] if blocks else []


_MEANING = f"Efficiency is the rate of n processes over n times the rate of one. {COLUMNS}"


def _by_strategy(group: Iterable[Trial]) -> list[list[Trial]]:
    """Trials that differ in their number of processes alone, of the strategies that have several."""
    found: dict[str, list[Trial]] = defaultdict(list)
    for trial in sorted(group, key=lambda t: processes(t) or 0):
        if (strategy := trial.config.get("strategy", "single")) not in ALONE:
            found[f"{strategy} {_own(trial)}"].append(trial)
    return list(found.values())


def _heading(alone: Trial, rows: Sequence[Trial], varying: Sequence[str]) -> str:
    config = rows[0].config
    left = [n for n in varying if n in config and n not in ("strategy", "world_size", *LEARNING)]
    settings = "".join(f", {name}={setting(config[name])}" for name in left)
    base = alone.config.get("strategy")
    beside = "" if base == config["strategy"] else f"; what one process does is of `{base}`"
    return wrapped(f"Strategy `{config['strategy']}`{settings}{beside}:")


def _scaling_table(rows: Sequence[Trial], alone: Trial) -> list[str]:
    base = alone.metrics[RATE]
    figures = {
        "images/s": [rate(t) for t in rows],
        "times one": [f"{t.metrics[RATE] / base:.2f}x" for t in rows],
        "efficiency": [percent(efficiency(t.metrics[RATE], processes(t) or 1, base)) for t in rows],
        "comm.": [percent(communication(t)) for t in rows],
    }
    return tables({"processes": [str(processes(t)) for t in rows]}, present(figures), _devices(rows))


def _why(trial: Trial, alone: Trial, cores: int, gpus: int) -> str:
    """Where the time went that n processes took longer than an n-th of one's."""
    number_of = processes(trial) or 1
    fraction = efficiency(trial.metrics[RATE], number_of, alone.metrics[RATE])
    text = [f"- {number_of} processes: efficiency {percent(fraction)}."]
    if fraction >= SCALES:
        return wrapped(f"{text[0]} Nothing to explain.", "  ")
    text += _cores_words(trial, number_of, cores, gpus)
    together, one = stages(trial), stages(alone)
    if not together or not one:
        return wrapped(" ".join([*text, "Its stages were not measured."]), "  ")
    step, ideal = sum(together.values()), sum(one.values()) / number_of
    text.append(
        f"A step takes {number(step)} ms; {_part(number_of)} of the step of one process would be {number(ideal)} ms."
    )
    lost = {name: max(0.0, ms) for name, ms in excess(together, number_of, one).items()}
    whole = sum(lost.values())
    causes = sorted(lost, key=lambda name: -lost[name])
    words = [
        f"{percent(lost[name] / whole)} of the difference {_cause(name, trial, number_of, together, one)}"
        for name in causes
        if whole and lost[name] / whole >= SHARE_WORTH_SAYING
    ]
    text += [f"{'; '.join(words)}."] * bool(words)
    uneven = trial.metrics.get("utilization_imbalance", math.nan)
    if uneven > UNEVEN:
        text.append(f"The busiest is {uneven:.2f} times as busy as the mean: the others wait for it.")
    return wrapped(" ".join(text), "  ")


def _cause(name: str, trial: Trial, number_of: int, together: Mapping[str, float], one: Mapping[str, float]) -> str:
    """What a stage that did not get n times as short has spent its time on."""
    match name:
        case "communicate":
            share = together[name] / sum(together.values())
            return f"is communication: {percent(share)} of each step waits for other processes"
        case "load":
            return "is input: batches do not come n times as fast"
        case "transfer":
            return "is copying: the devices share the way to them"
        case "update":
            return "is the update, which each process does for all its weights whatever its share of the batch"
    slower = number_of * together[name] / one[name] if one.get(name) else math.nan
    size = trial.config.get("batch_size")
    share_of = f"{size / number_of:.0f} of {size}" if type(size) is int else f"{_part(number_of)} of the"
    slower_words = f", {slower:.2f} times as long a picture" if math.isfinite(slower) else ""
    return f"is {name}{slower_words}: each process has {share_of} pictures of a batch to fill its cores or device with"


def _cores_words(trial: Trial, number_of: int, cores: int, gpus: int) -> list[str]:
    """Whether one process had more to compute with than each of several has."""
    if gpus:
        return []
    mine, its = (trial.config.get("threads") or max(1, cores // n) for n in (number_of, 1))
    if mine < its:
        return [f"They share the cores: each has {count(mine, 'thread')}, the one alone had {its}."]
    asked = number_of * mine
    return [f"{asked} threads share {count(cores, 'core')}."] if asked > cores else []


def _part(number_of: int) -> str:
    return "half" if number_of == 2 else f"1/{number_of}"


# --- nodes ------------------------------------------------------------------------------------------------------------


def nodes_used(trials: Iterable[Trial], num_nodes: int) -> str:
    """On how many nodes of a cluster trials were, by placement; empty where there is one node."""
    used: dict[str, set[int]] = defaultdict(set)
    for trial in trials:
        if "nodes" in trial.metrics:
            used[str(trial.config.get("placement", "pack"))].add(int(trial.metrics["nodes"]))
    placed = [f"placement {name}: trials on {' or '.join(map(str, sorted(used[name])))}" for name in sorted(used)]
    return "; ".join([f"{num_nodes} in the cluster", *placed]) if num_nodes > 1 else ""
