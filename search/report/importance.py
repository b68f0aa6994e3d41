"""Importance of each setting for an objective: PED-ANOVA on the trials of a run, beside the importance by chance.

Watanabe, Bansal and Hutter, PED-ANOVA: Efficiently Quantifying Hyperparameter Importance in Arbitrary Subspaces,
IJCAI 2023, as implemented in Optuna. It compares the settings of the best trials with those of all trials.
"""

from __future__ import annotations

import importlib.util
import math
import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from search.front.candidates import fully_trained
from search.front.objective import Objective
from search.record.run_state import RunState
from search.record.trial import Trial

Judge = Callable[[Sequence[float]], dict[str, float]]

FEWEST_TRIALS = 10  # below that the best of them are too few
MOST_TRIALS = 200  # 0.07 s for each evaluation
SHUFFLES = 19  # of which the largest is exceeded by chance in one of 20 runs
BEST_SHARE = 0.1  # of the trials
FEWEST_BEST = 20  # as far as they are at most half of the trials: of fewer, chance explains nearly everything


@dataclass(frozen=True)
class Importance:
    """Importance of the settings for one metric, most important first; the shares add up to 1."""

    metric: str
    trials: int  # number of trials evaluated
    measured: int  # number of trials that measured the metric
    best: int  # number of the best of them, whose settings were compared with those of all
    shares: Mapping[str, float]
    chance: float  # largest share of any setting under SHUFFLES random permutations of the results


def importance(run_state: RunState, objective: Objective) -> Importance | str:
    """Return the importance for one objective, or the reason why there is none."""
    measured = [t for t in run_state.trials.values() if t.state == "complete"]
    measured = [t for t in measured if math.isfinite(t.own_metrics.get(objective.metric, math.nan))]
    measured = [t for t in measured if run_state.is_reached(t, objective.metric)]
    if not any(t.kind == "probe" for t in measured):  # training: only those with the most epochs are comparable
        measured = fully_trained(measured)
    if len(measured) < FEWEST_TRIALS:
        return f"Too few trials: {len(measured)} measured it, {FEWEST_TRIALS} are needed."
    if importlib.util.find_spec("optuna") is None:
        return "Not computed: Optuna was not installed."
    size = min(len(measured), MOST_TRIALS)
    trials = [measured[i * len(measured) // size] for i in range(size)]  # evenly spaced
    info = run_state.info
    idle = info.without_effect(objective.metric)  # else noise would appear as importance
    has = {name: sum(t.config.get(name) is not None for t in trials) for name in run_state.varying_parameters(trials)}
    # at least two trials have the parameter, and no trial or at least two trials lack it
    judged = {name for name, number in has.items() if number > 1 and size - number != 1} - {*idle}
    names = [name for name in run_state.parameters() if name in judged]
    values = [objective.loss(t.own_metrics[objective.metric]) for t in trials]
    if not names or sorted(values)[_number_of_best(size) - 1] == max(values):
        return "No importance: the trials hardly differ in this metric."
    divergences = _judge(run_state, trials, names)
    raw = divergences(values)
    whole = sum(raw.values())
    if whole <= 0:
        return "No importance: the best trials have the same settings as the others."
    shuffler, chance = random.Random(0), 0.0
    for _ in range(SHUFFLES):
        shuffler.shuffle(values)
        chance = max(chance, *divergences(values).values())
    chance /= whole
    if all(raw[name] / whole <= chance for name in raw):
        return "No importance: by chance the best trials would differ from the others as much."
    shares = {name: raw[name] / whole for name in raw}
    return Importance(objective.metric, size, len(measured), _number_of_best(size), shares, chance)


def _number_of_best(trials: int) -> int:
    return max(min(FEWEST_BEST, trials // 2), math.ceil(BEST_SHARE * trials))


def _judge(run_state: RunState, trials: Sequence[Trial], names: list[str]) -> Judge:
    """Return a function from losses to the divergence between the best trials and all trials, per parameter."""
    import optuna  # takes 0.5 s, and reading a run does not need it

    from search.report.optuna_trials import distribution, new_study

    study, stated = new_study(), run_state.info.parameters
    found = {name: [t.config[name] for t in trials if t.config.get(name) is not None] for name in names}
    kinds = {name: distribution(stated.get(name, {}), values) for name, values in found.items()}
    for trial in trials:
        own = {name: trial.config[name] for name in names if trial.config.get(name) is not None}
        known = {name: kinds[name] for name in own}
        study.add_trial(optuna.trial.create_trial(params=own, distributions=known, value=0.0))
    # less half a trial: rounding does not change the number of the best
    quantile = (_number_of_best(len(trials)) - 0.5) / len(trials)
    evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=quantile)

    def divergences(losses: Sequence[float]) -> dict[str, float]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the warning says that low values count as the best, which is correct
            return evaluator.evaluate(study, params=names, target=lambda trial: losses[trial.number])

    return divergences
