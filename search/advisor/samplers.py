"""Optuna's samplers behind one name each, and how a `Space` is asked of an Optuna trial."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler, NSGAIISampler, RandomSampler, TPESampler

from search.space.space import Choice, Range, Space
from trainables.contract import Scalar

NSGA2_POPULATION = 20  # Optuna's 50 is nearly the whole of a usual budget before anything is learned


def make_sampler(space: Space, seed: int) -> BaseSampler:
    """The sampler that `space.searcher.name` means; it samples one trial and is then thrown away.

    A fresh one for each trial makes a proposal depend on the seed and on what the study holds, never on how often
    a generator was drawn from before: that is what lets a resumed search go on as if it had never been interrupted.
    """
    if space.searcher.name == "nsga2":
        return NSGAIISampler(population_size=NSGA2_POPULATION, seed=seed)
    if space.searcher.name == "tpe":
        return _tpe(seed, joint=all(isinstance(parameter, Choice) for parameter in space.parameters.values()))
    return RandomSampler(seed=seed)


def recording_sampler(space: Space) -> BaseSampler:
    """For trials whose configuration is already decided: draws nothing, and keeps NSGA-II's generations."""
    return make_sampler(space, seed=0) if space.searcher.name == "nsga2" else RandomSampler(seed=0)


def suggest(trial: optuna.Trial, space: Space) -> dict[str, Scalar]:
    """Values of the parameters that are active, each after those that its `when` names."""
    chosen: dict[str, Scalar] = {}
    for name, parameter in space.parameters.items():
        if space.active(name, chosen):
            chosen[name] = _suggest_value(trial, name, parameter)
    return chosen


def encode(space: Space, config: Mapping[str, Scalar]) -> dict[str, Any]:
    """What Optuna calls the values of `config`; `suggest` on a trial forced to these gives them back.

    Raises:
        ValueError: a parameter of the space cannot have that value.
    """
    encoded: dict[str, Any] = {}
    for name, parameter in space.parameters.items():
        if name in config:
            if not parameter.takes(config[name]):
                raise ValueError(f"{name} cannot be {config[name]!r}")
            encoded[name] = parameter.options.index(config[name]) if isinstance(parameter, Choice) else config[name]
    return encoded


def _suggest_value(trial: optuna.Trial, name: str, parameter: Choice | Range) -> Scalar:
    if isinstance(parameter, Range):
        if parameter.type == "int":
            return trial.suggest_int(name, int(parameter.min), int(parameter.max), log=parameter.log)
        return trial.suggest_float(name, parameter.min, parameter.max, log=parameter.log)
    options = parameter.options
    if parameter.is_ladder:
        return options[trial.suggest_int(name, 0, len(options) - 1)]
    return options[trial.suggest_categorical(name, range(len(options)))]


def _tpe(seed: int, *, joint: bool) -> TPESampler:
    """`joint`: one density over all parameters (per group of those active together) instead of one each.

    By measurement: over lists of values the joint density finds more, over ranges it is too wide with so few trials.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)  # `group` has been one since Optuna 2.8
        return TPESampler(seed=seed, multivariate=joint, group=joint)
