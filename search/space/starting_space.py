"""Space file to start from, for a user's training file: what it searches, and what it leaves as the file has it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

from search.front.roles import rate_metric
from trainables.contract import Metric, Parameter, Scalar, Trainable

LEARNING_RATES = {"sgd": (0.001, 0.1), "adamw": (0.0001, 0.01)}
LOADERS = (0, 1)
NOT_SEARCHED = ("seed",)  # a matter of luck
TIMELESS = ("lr", "learning_rate", "momentum", "weight_decay", "label_smoothing", "beta1", "beta2", "eps", "gamma")


def starting_space(
    trainable: Trainable,
    file: str,
    root: str | None,
    batch_size: int,
    settings: Mapping[str, str],
    decoupled: bool = False,
) -> str:
    """Return the text of a space file, to be kept beside `file`.

    `settings`: those that the training was checked with, which it keeps; `decoupled`: probes find the fastest settings
    first. The file's own parameters are searched where it has a loop; elsewhere they keep their defaults, and a comment
    has values to search.
    """
    known, own = trainable.METRICS or {}, _own_parameters(trainable)
    workload = bool(trainable.STRATEGIES)
    searched = _of_any_workload(batch_size, settings) if workload else {}
    proposed = {n: text for n, p in own.items() if n not in settings and (text := values_to_search(n, p))}
    if not workload:
        searched, proposed = proposed, {}
    kept = {name: _written(p.default) for name, p in own.items() if name not in searched and p.default is not None}
    kept |= {name: value for name, value in settings.items() if name not in searched}
    lines = [
        f"trainable: {file}",
        "objectives:",
        f"  - {_objective(known)}",
        f"  - {{metric: {rate_metric(known)}, goal: maximize}}",
        "parameters:" if searched else "parameters: {}",
        *(f"  {name}: {values}" for name, values in searched.items()),
        *(f"  # {name}: {values}  # then without it in `fixed`" for name, values in proposed.items()),
        *(["fixed:", *(f"  {name}: {value}" for name, value in kept.items())] if kept else []),
        *(["evaluation: decoupled"] if decoupled else []),
        *([f"data: {{root: {json.dumps(root, ensure_ascii=False)}}}"] if root else []),
        "budget: {hours: 0.5, epochs: 5}",
    ]
    return "\n".join(lines) + "\n"


def _own_parameters(trainable: Trainable) -> dict[str, Parameter]:
    names = getattr(trainable, "own_names", ())
    return {name: parameter for name, parameter in (trainable.PARAMETERS or {}).items() if name in names}


def _objective(known: Mapping[str, Metric]) -> str:
    """Return the first of the file's metrics as an objective, with a comment where its goal is a guess."""
    name, metric = next((name, metric) for name, metric in known.items() if metric.role is not None)
    guess = "  # a guess by its name" if metric.role_is_guess else ""
    return f"{{metric: {name}, goal: {metric.goal}}}{guess}"


def _of_any_workload(batch_size: int, settings: Mapping[str, str]) -> dict[str, str]:
    low, high = LEARNING_RATES.get(settings.get("optimizer", "sgd"), LEARNING_RATES["sgd"])
    found = {
        "batch_size": _listed([batch_size * factor for factor in (1, 2, 4)]),
        "learning_rate": f"{{min: {low:g}, max: {high:g}, log: true}}",
        "num_workers": _listed(LOADERS),
    }
    return {name: values for name, values in found.items() if name == "batch_size" or name not in settings}


def values_to_search(name: str, parameter: Parameter) -> str:
    """Return the declared range of a parameter, or else values around its default; empty: there is nothing to search.

    A range over a factor of ten or more is searched by ratios.
    """
    low, high = parameter.low, parameter.high
    if low is None or high is None or low >= high or parameter.choices or name in NOT_SEARCHED:
        values = values_around(name, parameter)
        return _listed(values, name) if len(values) > 1 else ""
    if parameter.type == "int":
        low, high = math.ceil(low), math.floor(high)
    log = ", log: true" if 0 < 10 * low <= high else ""
    return f"{{min: {_written(low)}, max: {_written(high)}{log}{_affects(name)}}}"


def values_around(name: str, parameter: Parameter) -> list[Scalar]:
    """Return values to search, around the default of a parameter: the default alone where no others are known."""
    default, low, high = parameter.default, parameter.low, parameter.high
    if name in NOT_SEARCHED or default is None:
        return [] if default is None else [default]
    if parameter.choices:
        return list(parameter.choices)
    if parameter.type == "bool":
        return [False, True]
    if isinstance(default, str):
        return [default]
    if isinstance(default, int):
        near = [default // 2, default, default * 2] if default > 0 else [default]
        return [n for n in near if n == default or (n and _within(n, low, high, open_ends=False))]
    around = dict.fromkeys(_near(float(default), high))  # a default of many digits may be one of its neighbours
    return [x for x in around if x == default or _within(x, low, high, open_ends=True)]


def _near(default: float, high: float | None) -> list[float]:
    """Return a smaller and a larger value beside the default; a fraction, such as momentum, remains one.

    The larger the fraction, the smaller the steps: 0.8, 0.9 and 0.95, but 0.05, 0.1 and 0.2.
    """
    if default == 0:
        return [0.0, *(float(f"{high * part:.1g}") for part in (0.125, 0.25))] if high else [0.0]
    if not 0 < default < 1:
        return [default / 2, default, default * 2] if default > 0 else [default]
    return [_rounded(max(default / 2, 2 * default - 1)), default, _rounded(min(2 * default, (1 + default) / 2))]


def _within(value: float, low: float | None, high: float | None, open_ends: bool) -> bool:
    """Return whether a value is between the limits; a limit of fractions often makes no sense itself (a rate of 0)."""
    least, most = -math.inf if low is None else low, math.inf if high is None else high
    return least < value < most if open_ends else least <= value <= most


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def _listed(values: Sequence[Scalar], name: str = "") -> str:
    return f"{{values: [{', '.join(map(_written, values))}]{_affects(name)}}}"


def _affects(name: str) -> str:
    return ", affects: trained" if name in TIMELESS else ""


def _written(value: Scalar | None) -> str:
    """Return a value as YAML reads it again; quoted where its text could be taken for something else."""
    if isinstance(value, str) and value.isidentifier() and value.lower() not in ("true", "false", "null"):
        return value
    return json.dumps(value, ensure_ascii=False)
