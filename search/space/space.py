"""Checked content of a space file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, PlainSerializer
from pydantic_core import PydanticCustomError

from search.front.affects import is_learned
from search.front.objective import Constraint, Objective, read_constraint
from search.front.roles import rate_metric, rate_unit
from search.front.targets import Target, as_objective, target_constraint, target_metrics, targets_of
from search.space.budget import Budget, Evaluation, SearcherSettings, StoppingSettings
from search.space.parameters import (
    LIST_TO_TUPLE,
    MAPPING_TO_DATACLASS,
    STRICT,
    AnyParameter,
    Choice,
    Range,
    Scalar,
)
from search.space.validation import SpaceError
from search.states import Kind
from search.text.configurations import format_setting
from trainables import contract
from trainables.contract import EPOCHS, Data, Resources, load_trainable

MAX_GRID_POINTS = 100_000
MOST_CONCURRENT_TRIALS = 100  # a process beside the search, of 0.125 GiB, relays each one


def _parse_constraint(value: Any) -> Constraint:
    try:
        return value if isinstance(value, Constraint) else read_constraint(value)
    except (TypeError, ValueError):
        message = '"METRIC <= NUMBER", "METRIC >= NUMBER" or "METRIC >= NUMBER * baseline"'
        raise PydanticCustomError("expected", message) from None


def _parse_objective(value: Any) -> Any:
    try:
        return as_objective(value)
    except ValueError as error:
        raise PydanticCustomError("expected", "{form}", {"form": str(error)}) from None


ConstraintField = Annotated[
    Constraint, BeforeValidator(_parse_constraint, json_schema_input_type=str), PlainSerializer(str)
]
ObjectiveField = Annotated[
    Objective,
    MAPPING_TO_DATACLASS,
    BeforeValidator(
        _parse_objective, json_schema_input_type=Objective | dict[Literal["time_to", "energy_to"], dict[str, float]]
    ),
]


class Space(BaseModel):
    """Checked content of a space file. Each of `parameters` comes after those that its `when` names.

    `evaluation`: coupled trains every trial; decoupled first probes for the settings with the best rate and trains with
    those; probe only probes, for metrics that need no training. `baseline`, the configuration in use today, is the
    first trial, unchanged; constraints may be given as multiples of its metrics.
    """

    model_config = STRICT
    trainable: str | None = None
    evaluation: Evaluation = "coupled"
    objectives: Annotated[tuple[ObjectiveField, ...], LIST_TO_TUPLE]
    constraints: Annotated[tuple[ConstraintField, ...], LIST_TO_TUPLE] = ()
    parameters: dict[str, AnyParameter]
    fixed: dict[str, Scalar] = {}
    baseline: dict[str, Scalar] = {}
    data: Annotated[Data, MAPPING_TO_DATACLASS] = Data()
    searcher: SearcherSettings = SearcherSettings()
    stopping: StoppingSettings = StoppingSettings()
    budget: Budget = Budget()
    concurrent_trials: Annotated[int, Field(ge=1, le=MOST_CONCURRENT_TRIALS)] = 1
    without_gpu: dict[str, Any] = {}

    def last_epoch(self, config: Mapping[str, Any]) -> int:
        """Epoch at which a trial with these settings is complete: their `epochs`, or the budget's; 0 for probes."""
        return 0 if self.evaluation == "probe" else int({**self.fixed, **config}.get(EPOCHS) or self.budget.epochs)

    @property
    def lengths(self) -> tuple[int, int]:
        """Least and largest number of epochs of a complete trial."""
        match self.parameters.get(EPOCHS):
            case Range(min=least, max=most):
                return round(least), round(most)
            case Choice(values=values):
                return min(map(int, values)), max(map(int, values))
        length = self.last_epoch({})
        return length, length

    @property
    def trial_kind(self) -> Kind:
        """Kind of the trials that the budget counts."""
        return "probe" if self.evaluation == "probe" else "train"

    @property
    def stopping_rule(self) -> Literal["none", "forecast"]:
        """`stopping.name`, with `auto` resolved."""
        if self.stopping.name != "auto":
            return self.stopping.name
        forecast = self.searcher.name != "grid" and self.trial_kind == "train" and self.budget.limits_more_than_trials
        # Seconds until a value is reached grow with each epoch until then, which no forecast is made for. Where lengths
        # are searched, short trials tell more than the beginnings of long ones.
        return "forecast" if forecast and not self.targets and EPOCHS not in self.parameters else "none"

    @property
    def loaded_trainable(self) -> contract.Trainable:
        """Trainable that the space names.

        Raises:
            LookupError: it names none, or there is no such trainable.
        """
        return load_trainable(self.trainable or "")

    @property
    def known_metrics(self) -> Mapping[str, contract.Metric]:
        """Metrics of the trainable, and those computed for objectives such as `time_to`."""
        reported = (load_trainable(self.trainable).METRICS if self.trainable else None) or {}
        return {**reported, **target_metrics(targets_of(o.metric for o in self.objectives), reported)}

    @property
    def targets(self) -> list[tuple[Target, bool]]:
        """Values to reach, of objectives such as `time_to`, each with whether less of its metric is better."""
        found = targets_of(objective.metric for objective in self.objectives)
        return [(target, self.known_metrics[target.best].role == "loss") for target in found]

    @property
    def stated_constraints(self) -> tuple[Constraint, ...]:
        """Constraints of the file, and that targets are reached."""
        return (*self.constraints, *(target_constraint(target, lower) for target, lower in self.targets))

    @property
    def all_constraints(self) -> tuple[Constraint, ...]:
        """Constraints of the file, and the limits of the machine: no trial can use more memory than there is."""
        limits = {name: metric.limit for name, metric in self.known_metrics.items() if metric.limit is not None}
        limited = {c.metric for c in self.constraints if c.operator == "<=" and not c.of_baseline}
        more = (Constraint(name, "<=", limit) for name, limit in limits.items() if name not in limited)
        return (*self.stated_constraints, *more)

    @property
    def rate_unit(self) -> str:
        """Unit of the training's rate, such as `tokens/s`; samples where the trainable does not say what it counts."""
        return rate_unit(rate_metric(self.known_metrics)) if self.known_metrics else "samples/s"

    def is_probed(self, objective: Objective) -> bool:
        """Return whether a probe measures the objective; its value then does not depend on the number of epochs."""
        if objective.probed is None and objective.metric in self.known_metrics:
            return self.known_metrics[objective.metric].probed
        return bool(objective.probed)

    def is_learned(self, metric: str) -> bool:
        """Return whether a metric takes training, also one that is no objective."""
        return is_learned(self.trainable or "", metric, [o.metric for o in self.objectives if o.probed])

    @property
    def num_repeats(self) -> int:
        """Number of times that the front is probed again: 0 where probes measure nothing that is asked for."""
        asked = [*(o.metric for o in self.objectives), *(constraint.metric for constraint in self.constraints)]
        is_of_use = self.evaluation != "probe" and not all(map(self.is_learned, asked))
        return self.budget.repeats if is_of_use else 0

    def affecting(self, what: Literal["probed", "trained"]) -> set[str]:
        """Names of the parameters that affect the metrics that a probe measures, or those that need training."""
        known = (load_trainable(self.trainable).PARAMETERS if self.trainable else None) or {}
        stated = {name: parameter.affects for name, parameter in self.parameters.items()}
        return {n for n in stated if (stated[n] or (known[n].affects if n in known else "all")) in ("all", what)}

    @property
    def probe_tuned_parameters(self) -> set[str]:
        """Names of the parameters that probes choose before a training starts: they affect no metric of training."""
        return self.parameters.keys() - self.affecting("trained") if self.evaluation == "decoupled" else set()

    @property
    def grid_points(self) -> int | None:
        """Number of configurations in the grid; None for other searchers."""
        return len(self.grid()) if self.searcher.name == "grid" else None

    @property
    def max_trials(self) -> int | None:
        """Largest possible number of trials; None: not limited."""
        limits = [n for n in (self.budget.trials, self.grid_points) if n is not None]
        return int(min(*limits, self.num_configs)) if limits else None

    @property
    def num_configs(self) -> float:
        """Number of configurations without what probes tune; infinite: too many to be counted."""
        tuned = self.probe_tuned_parameters
        with suppress(SpaceError):
            return len({frozenset((n, v) for n, v in config.items() if n not in tuned) for config in self.grid()})
        return math.inf

    def active(self, name: str, config: Mapping[str, Any]) -> bool:
        """Return whether a parameter is active, given the values of the parameters before it."""
        values = {**self.fixed, **config}
        return all(other in values and values[other] in wanted for other, wanted in self.parameters[name].when.items())

    def resources_per_trial(self, total: Resources) -> Resources:
        """Return the resources of one of the concurrent trials: whole nodes, or an equal part of one node.

        Raises:
            SpaceError: there is too little for so many trials.
        """
        trials, node = self.concurrent_trials, total.node
        nodes_per_trial, trials_per_node = max(1, total.nodes // trials), math.ceil(trials / total.nodes)
        cpus, gpus = nodes_per_trial * (node.cpus // trials_per_node), nodes_per_trial * (node.gpus // trials_per_node)
        if cpus == 0 or (total.gpus and not gpus):
            shared = f"{total.cpus} cores and {total.gpus} GPUs"
            most = total.nodes * (min(node.cpus, node.gpus) if node.gpus else node.cpus)
            raise SpaceError(f"concurrent_trials: {trials} trials cannot share {shared}; {most} could")
        return Resources(cpus, gpus, nodes_per_trial)

    def meanings_of_auto(self, resources: contract.Resources) -> dict[str, str]:
        """Return what `auto` stands for here, by name, for each setting that has it in some trial."""
        trainable = load_trainable(self.trainable) if self.trainable else None
        meanings = getattr(trainable, "meanings_of_auto", None)
        if trainable is None or meanings is None:
            return {}
        defaults = {name: parameter.default for name, parameter in (trainable.PARAMETERS or {}).items()}
        found: Mapping[str, contract.Scalar] = meanings(resources)
        return {
            name: format_setting(value)
            for name, value in found.items()
            if "auto" in self._values(name, defaults.get(name))
        }

    def _values(self, name: str, default: contract.Scalar | None) -> Sequence[contract.Scalar | None]:
        """Return the values that a setting may have; none of a range."""
        parameter = self.parameters.get(name)
        if parameter is None:
            return [self.fixed.get(name, default)]
        inactive = [default] if parameter.when else []
        return [*inactive, *(parameter.values if isinstance(parameter, Choice) else ())]

    def grid(self) -> list[dict[str, contract.Scalar]]:
        """Return all distinct choices of active parameters, without `fixed`; the last parameter varies fastest.

        Raises:
            SpaceError: a parameter is a range, or there are too many points.
        """
        configs: list[dict[str, contract.Scalar]] = [{}]
        for name, parameter in self.parameters.items():
            if isinstance(parameter, Range):
                raise SpaceError(f"parameters.{name}: a grid needs values, and this is a range")
            choices = [{name: value} for value in parameter.values]
            if len(configs) * len(choices) > MAX_GRID_POINTS:
                raise SpaceError(f"parameters: a grid of more than {MAX_GRID_POINTS:,} points; use another searcher")
            configs = [{**c, **choice} for c in configs for choice in (choices if self.active(name, c) else [{}])]
        return configs

    def to_mapping(self) -> dict[str, Any]:
        """Return plain data, fit for JSON, from which `parse_space` makes an equal space."""
        return self.model_dump(mode="json")
