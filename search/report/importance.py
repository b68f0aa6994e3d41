"""How much each setting decides of each objective: PED-ANOVA on the trials of a run, beside what chance would give.

Watanabe, Bansal and Hutter, PED-ANOVA: Efficiently Quantifying Hyperparameter Importance in Arbitrary Subspaces,
IJCAI 2023, as Optuna has it. It asks which settings the best trials have that the others have not.
"""

from __future__ import annotations

import importlib.util
import math
import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from search.front.bearing import without_bearing
from search.front.objective import Objective
from search.record.history import History, Trial

Judge = Callable[[Sequence[float]], dict[str, float]]

FEWEST_TRIALS = 10  # below that the best of them are too few to tell anything
MOST_TRIALS = 300  # a tenth of a second for each look at them
SHUFFLES = 10
FEWEST_BEST = 5  # trials, as Optuna advises
BEST_SHARE = 0.1


@dataclass(frozen=True)
class Importance:
    """Of the settings for one metric, most important first; the shares add up to 1."""

    metric: str
    trials: int  # that it is of
    measured: int  # that it might have been of: it takes at most 300
    shares: Mapping[str, float]
    chance: Mapping[str, float]  # the most that the setting reached when the results were dealt out anew, 10 times


def importance(history: History, objective: Objective) -> Importance | str:
    """For one objective, or why there is none."""
    trials = _comparable(history, objective.metric)
    if len(trials) < FEWEST_TRIALS:
        return f"Too few trials: {len(trials)} measured it, {FEWEST_TRIALS} are needed."
    if importlib.util.find_spec("optuna") is None:
        return "Not computed: Optuna is not installed where this was written."
    measured, trials = len(trials), _thinned(trials)
    idle = without_bearing(history.info, objective.metric)  # else noise would seem to decide
    names = [name for name in _judged(history, trials) if name not in idle]
    values = [objective.loss(t.metrics[objective.metric]) for t in trials]
    if not names or sorted(values)[_best(len(values)) - 1] == max(values):
        return "Nothing to tell: the trials hardly differ in it."
    divergences = _judge(history, trials, names)
    raw = divergences(values)
    whole = sum(raw.values())
    if whole <= 0:
        return "Nothing to tell: the best trials have the settings of all others."
    shuffler, dealt = random.Random(0), [dict.fromkeys(names, 0.0)]
    for _ in range(SHUFFLES):
        shuffler.shuffle(values)
        dealt.append(divergences(values))
    chance = {name: max(each[name] for each in dealt) / whole for name in names}
    return Importance(objective.metric, len(trials), measured, {name: raw[name] / whole for name in raw}, chance)


def _comparable(history: History, metric: str) -> list[Trial]:
    """Complete trials that measured it; where it takes training, those with the most epochs only."""
    found = [
        t for t in history.trials.values() if t.state == "complete" and math.isfinite(t.metrics.get(metric, math.nan))
    ]
    if any(t.kind == "probe" for t in found):
        return found
    most = max((t.epochs for t in found), default=0)
    return [t for t in found if t.epochs == most]


def _thinned(trials: list[Trial]) -> list[Trial]:
    return [trials[i * len(trials) // MOST_TRIALS] for i in range(MOST_TRIALS)] if len(trials) > MOST_TRIALS else trials


def _judged(history: History, trials: Sequence[Trial]) -> list[str]:
    """Parameters that at least two trials have and, if any lacks them, at least two lack: one tells nothing."""
    has = {name: sum(t.config.get(name) is not None for t in trials) for name in history.varying(trials)}
    return [
        n for n in history.parameters() if has.get(n, 0) > 1 and (len(trials) - has[n] == 0 or len(trials) - has[n] > 1)
    ]


def _best(number_of: int) -> int:
    """How many trials are the best."""
    return max(FEWEST_BEST, math.ceil(BEST_SHARE * number_of))


def _judge(history: History, trials: Sequence[Trial], names: list[str]) -> Judge:
    """Of losses of these trials: how differently the best of them and all spread over each parameter."""
    import optuna  # half a second, and not needed to read a run

    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # it announces each study
    study = optuna.create_study()
    optuna.logging.set_verbosity(level)
    kinds = {name: _distribution(history, name, trials) for name in names}
    for trial in trials:
        own = {name: trial.config[name] for name in names if trial.config.get(name) is not None}
        known = {name: kinds[name] for name in own}
        study.add_trial(optuna.trial.create_trial(params=own, distributions=known, value=0.0))
    quantile = (_best(len(trials)) - 0.5) / len(trials)  # half: whatever is rounded, so many are the best
    evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=quantile)

    def divergences(losses: Sequence[float]) -> dict[str, float]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns that low values are taken as the best, which they are
            return evaluator.evaluate(study, params=names, target=lambda trial: losses[trial.number])

    return divergences


def _distribution(history: History, name: str, trials: Sequence[Trial]) -> Any:
    """As the space file states it; what it does not state is what was tried."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    stated = history.info["space"]["parameters"].get(name, {})
    found = [t.config[name] for t in trials if t.config.get(name) is not None]
    if "min" not in stated:
        return CategoricalDistribution(list(dict.fromkeys(found)))
    low, high, log = min(found), max(found), bool(stated.get("log"))
    return IntDistribution(low, high, log) if all(type(v) is int for v in found) else FloatDistribution(low, high, log)
