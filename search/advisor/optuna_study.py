"""Search as an Optuna study: the history that Optuna's samplers suggest from."""

import math
import warnings
from collections.abc import Mapping, Sequence

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.trial import TrialState

from search.space.parameters import Choice
from search.space.space import Space
from search.states import State
from trainables.contract import Scalar

NSGA2_POPULATION = 20  # Optuna's default of 50 would spend most of a usual budget on the first generation


class OptunaStudy:
    """Optuna study of a space."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._started: dict[str, optuna.Trial] = {}  # by the ID of the trial
        optuna.logging.set_verbosity(optuna.logging.WARNING)  # without a line on the terminal for each study
        self._study = optuna.create_study(directions=["minimize"] * len(space.objectives))  # values are losses

    def suggest(self, seed: int) -> dict[str, Scalar]:
        """Return the configuration that the space's sampler suggests, without starting a trial."""
        self._study.sampler = _make_sampler(self._space, seed)
        draft = self._study.ask()
        chosen = _suggest(draft, self._space)
        self._study.tell(draft, state=TrialState.FAIL)  # samplers ignore failed trials
        return chosen

    def start(self, trial_id: str, config: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """Start a trial of this configuration; return its searched parameters.

        Raises:
            ValueError: the configuration is not in the space.
        """
        encoded = dict[str, Scalar]()  # Optuna's values, for which `_suggest` returns those of `config`
        for name, parameter in self._space.parameters.items():
            if name in config:
                if not parameter.contains(value := config[name]):
                    raise ValueError(f"{name} cannot be {value!r}")
                encoded[name] = parameter.ordered_values.index(value) if isinstance(parameter, Choice) else value
        # a given configuration needs no draws, but NSGA-II keeps its generations
        is_nsga2 = self._space.searcher.name == "nsga2"
        self._study.sampler = _make_sampler(self._space, seed=0) if is_nsga2 else RandomSampler(seed=0)
        self._study.enqueue_trial(encoded)
        trial = self._study.ask()
        _ = trial.relative_params  # makes NSGA-II assign a generation, which Optuna skips for enqueued trials
        self._started[trial_id] = trial
        return _suggest(trial, self._space)

    def tell(self, trial_id: str, state: State, losses: Sequence[float] | None, excesses: Mapping[str, float]) -> None:
        """Record the end of a trial. A complete trial with `losses` None measured nothing and counts as infeasible."""
        trial = self._started[trial_id]
        if state in ("failed", "stopped"):
            self._study.tell(trial, state=TrialState.FAIL if state == "failed" else TrialState.PRUNED)
            return
        for name, excess in excesses.items():  # between -1 and 1
            trial.set_constraint(name, math.copysign(-math.expm1(-abs(excess)), excess))
        if losses is None:
            # Samplers ignore trials in the state FAIL and would suggest the same configuration again. They remember a
            # violated constraint, and then ignore the values, which Optuna requires. 1 exceeds every other constraint.
            trial.set_constraint("works here", 1.0)
            losses = [math.inf] * len(self._space.objectives)
        self._study.tell(trial, losses)


def _make_sampler(space: Space, seed: int) -> BaseSampler:
    """Make the sampler named by `space.searcher.name`, for one trial.

    A new sampler for each trial makes a proposal depend only on the seed and on the trials in the study, so that a
    resumed search continues as if it had never been interrupted. TPE over lists of values uses one joint density (per
    group of parameters active together): by measurement it finds more there, but over ranges, with so few trials, it
    is too wide, and one density per parameter is better.
    """
    if space.searcher.name == "nsga2":
        return NSGAIISampler(population_size=NSGA2_POPULATION, seed=seed)
    if space.searcher.name == "tpe":
        joint = all(isinstance(parameter, Choice) for parameter in space.parameters.values())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)  # `group` is experimental since Optuna 2.8
            return TPESampler(seed=seed, multivariate=joint, group=joint)
    return RandomSampler(seed=seed)


def _suggest(trial: optuna.Trial, space: Space) -> dict[str, Scalar]:
    """Suggest values of the active parameters, each after those that its `when` names."""
    chosen: dict[str, Scalar] = {}
    for name, parameter in space.parameters.items():
        if not space.active(name, chosen):
            continue
        if isinstance(parameter, Choice):
            last, ordinal = len(parameter.values) - 1, parameter.is_ordinal
            index = trial.suggest_int(name, 0, last) if ordinal else trial.suggest_categorical(name, range(last + 1))
            chosen[name] = parameter.ordered_values[index]
        elif parameter.type == "int":
            chosen[name] = trial.suggest_int(name, int(parameter.min), int(parameter.max), log=parameter.log)
        else:
            chosen[name] = trial.suggest_float(name, parameter.min, parameter.max, log=parameter.log)
    return chosen
