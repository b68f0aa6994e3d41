"""Checked search space: a space file becomes a `Space`, or a one-line `SpaceError`."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, PlainSerializer, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from search.front.objective import Constraint, Objective, constraint_text, read_constraint
from search.front.roles import rate_metric, rate_unit
from search.front.targets import QUANTITIES, Target, as_objective, target_constraint, target_metrics, targets_of
from search.space.budget import Budget, Count, Evaluation, SearcherSettings, StoppingSettings, find_budget_problems
from search.space.parameters import (
    LIST_TO_TUPLE,
    MAPPING_TO_DATACLASS,
    STRICT,
    AnyParameter,
    Choice,
    Range,
    Scalar,
    explain_unsatisfiable,
    find_baseline_problems,
    find_parameter_problems,
    sort_by_dependency,
)
from search.space.space_file import OVERLAY, merge_settings, read_space_file
from search.space.validation import KeyPath, Problem, Source, SpaceError, did_you_mean, format_value, translate_error
from search.text.configurations import format_setting
from trainables import contract
from trainables.contract import EPOCHS, TRAINABLES, Data, Resources, Trainable, load_trainable

MAX_GRID_POINTS = 100_000
MOST_CONCURRENT_TRIALS = 100
GIB_PER_CONCURRENT_TRIAL = 0.125  # a process beside the search relays each one
UNKNOWN_KEY = ("extra_forbidden", "unexpected_keyword_argument")  # to pydantic
UNKNOWN_SOURCE = Source("space")


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
    Constraint, BeforeValidator(_parse_constraint, json_schema_input_type=str), PlainSerializer(constraint_text)
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
    concurrent_trials: Count = 1
    without_gpu: dict[str, Any] = {}

    def last_epoch(self, config: Mapping[str, Any]) -> int:
        """Epoch at which a trial with these settings is complete: their `epochs`, or the budget's; 0 for probes."""
        return 0 if self.evaluation == "probe" else int(config.get(EPOCHS) or self.budget.epochs)

    @property
    def lengths(self) -> tuple[int, int]:
        """Least and largest number of epochs of a complete trial."""
        match self.parameters.get(EPOCHS):
            case Range(min=least, max=most):
                return round(least), round(most)
            case Choice(values=values):
                return min(map(int, values)), max(map(int, values))
        length = self.last_epoch(self.fixed)
        return length, length

    @property
    def trial_kind(self) -> Literal["train", "probe"]:
        """Kind of the trials that the budget counts."""
        return "probe" if self.evaluation == "probe" else "train"

    @property
    def stopping_rule(self) -> Literal["none", "halving", "forecast"]:
        """`stopping.name`, with `auto` resolved."""
        if self.stopping.name != "auto":
            return self.stopping.name
        # seconds until a value is reached grow with each epoch until then, which no forecast is made for
        forecast = self.searcher.name == "gp" and self.trial_kind == "train" and not self.targets
        return "forecast" if forecast and self.budget.limits_more_than_trials else "none"

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
        return min((n for n in (self.budget.trials, self.grid_points) if n is not None), default=None)

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
        if trials > MOST_CONCURRENT_TRIALS:
            memory = f"{GIB_PER_CONCURRENT_TRIAL * trials:.0f} GiB beside the search itself"
            raise SpaceError(f"concurrent_trials: {trials}: at most {MOST_CONCURRENT_TRIALS}; so many take {memory}")
        nodes_per_trial, trials_per_node = max(1, total.nodes // trials), math.ceil(trials / total.nodes)
        cpus, gpus = nodes_per_trial * (node.cpus // trials_per_node), nodes_per_trial * (node.gpus // trials_per_node)
        if cpus == 0 or (total.gpus and not gpus):
            shared = f"{total.cpus} cores and {total.gpus} GPUs"
            raise SpaceError(f"concurrent_trials: {trials} trials cannot share {shared}")
        return Resources(cpus, gpus, nodes_per_trial)

    def restrict_to(self, resources: Resources) -> tuple[Space, list[str]]:
        """Return the part of the space that one trial's resources can run, and a line for each thing left out.

        Raises:
            SpaceError: no value of a parameter is available, a fixed value is not, or the search would never end.
        """
        space, lines = self, list[str]()
        if self.without_gpu and resources.gpus == 0:
            before = {**self.to_mapping(), OVERLAY: {}}
            space = parse_space(merge_settings(before, self.without_gpu), Source(OVERLAY))
            old, new = _flatten(before), _flatten(space.to_mapping())
            changed = ", ".join(key for key in old | new if old.get(key) != new.get(key))
            lines.append(f"no GPU here: {OVERLAY} sets {changed or 'nothing else'}")
        if resources.gpus == 0 and not (space.budget.limited_anywhere or space.grid_points):
            raise SpaceError("budget.gpu_hours: no GPU here: nothing is counted; set trials, hours or total_epochs")
        trainable = load_trainable(space.trainable) if space.trainable else None

        def reason_against(name: str, value: contract.Scalar) -> str | None:
            return trainable.unavailable(name, value, resources) if trainable else None

        superseded = getattr(trainable, "superseded", None)

        def left_out_because(name: str, parameter: Choice, value: contract.Scalar) -> str | None:
            if (reason := reason_against(name, value)) or superseded is None or space.baseline.get(name) == value:
                return reason
            found: str | None = superseded(name, value, parameter.values, resources)
            return found

        for name, value in space.fixed.items():
            if reason := reason_against(name, value):
                raise SpaceError(f"fixed.{name}: {format_value(value)} is not available here: {reason}")
        kept: dict[str, Choice | Range] = {}
        for name, parameter in space.parameters.items():
            if never := explain_unsatisfiable(parameter.when, kept, space.fixed):
                lines.append(f"{name}: left out, as {never} here")
                continue
            kept[name] = parameter
            if isinstance(parameter, Choice):
                pairs = [(value, left_out_because(name, parameter, value)) for value in parameter.values]
                left_out = [f"{name} {value}: {reason}" for value, reason in pairs if reason]
                values = tuple(value for value, reason in pairs if not reason)
                if not values:
                    raise SpaceError(f"parameters.{name}: none of its values is available here: {'; '.join(left_out)}")
                kept[name] = parameter.model_copy(update={"values": values})
                lines += left_out
        for problem in find_baseline_problems(space.baseline, kept, space.fixed, ()):
            raise SpaceError(f"baseline: not available here: {problem.message}")
        return space.model_copy(update={"parameters": kept}), lines

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


def load_space(path: Path, overrides: Sequence[str] = ()) -> Space:
    """Load and check a YAML file with `a.b=value` settings over it.

    Raises:
        SpaceError: the problems, each with file and line.
    """
    return parse_space(*read_space_file(path, overrides))


def parse_space(mapping: Mapping[str, Any], source: Source = UNKNOWN_SOURCE) -> Space:
    """Check plain data from this source.

    Raises:
        SpaceError: the problems, each with its place.
    """
    space = _check(mapping, source)
    if OVERLAY in space.without_gpu:
        raise source.error(Problem((OVERLAY, OVERLAY), "cannot contain itself; leave it out"))
    if space.without_gpu:
        _check(merge_settings({**mapping, OVERLAY: {}}, space.without_gpu), source.overlaid(OVERLAY))
    return space


def _check(mapping: Mapping[str, Any], source: Source) -> Space:
    try:
        space = Space.model_validate(mapping)
        space = space.model_copy(update={"trainable": _absolute(space.trainable, source)})
        trainable = load_trainable(space.trainable) if space.trainable is not None else None
    except ValidationError as error:
        raise source.errors([*_translated(error), *_parameter_problems(mapping, source)]) from None
    except LookupError as error:
        name = mapping["trainable"]
        if os.path.isfile(_absolute(name, source) or ""):  # the error has its own file and line
            raise SpaceError(str(error)) from None
        raise source.error(_no_trainable(name, source)) from None
    except ImportError as error:
        raise source.error(Problem(("trainable",), f"found {format_value(mapping['trainable'])}: {error}")) from None
    if trainable is not None and not hasattr(trainable, "PARAMETERS"):
        raise source.error(_no_trainable(mapping["trainable"], source))
    # a range is over whole numbers where the trainable accepts nothing else and the file does not say
    whole = {name for name, known in ((trainable and trainable.PARAMETERS) or {}).items() if known.type == "int"}
    parameters = dict(space.parameters)
    for name, parameter in space.parameters.items():
        if name in whole and isinstance(parameter, Range) and "type" not in parameter.model_fields_set:
            parameters[name] = parameter.model_copy(update={"type": "int"})
    space = space.model_copy(update={"parameters": parameters})
    if problems := list(_find_problems(space, trainable)):
        raise source.errors(problems)
    return space.model_copy(update={"parameters": sort_by_dependency(parameters)})


def _translated(error: ValidationError) -> Iterator[Problem]:
    """Yield the problems that pydantic found; a missing key is none where it may be there under a wrong name."""
    details = error.errors(include_url=False)
    misnamed = {detail["loc"][:-1] for detail in details if detail["type"] in UNKNOWN_KEY}
    for detail in details:
        if detail["type"] == "missing" and detail["loc"][:-1] in misnamed:
            continue
        enclosing = detail["loc"] if detail["type"] in ("model_type", "dataclass_type") else detail["loc"][:-1]
        owner = next((_OWNERS[part] for part in reversed(enclosing) if part in _OWNERS), Space)
        names = [*owner.__annotations__, *(QUANTITIES if owner is Objective else ())]
        yield translate_error(detail, names)


def _parameter_problems(mapping: Mapping[str, Any], source: Source) -> Iterator[Problem]:
    """Yield the problems of each parameter and fixed value alone, in a file that has mistakes elsewhere."""
    try:
        name = TypeAdapter(str).validate_python(mapping.get("trainable"), strict=True)
        trainable = load_trainable(_absolute(name, source) or "")
        known = trainable.PARAMETERS
    except (ValidationError, LookupError, ImportError, AttributeError):
        return
    parameters = _valid(mapping.get("parameters"), TypeAdapter(AnyParameter))
    fixed = _valid(mapping.get("fixed"), TypeAdapter(Scalar))
    for problem in find_parameter_problems(parameters, fixed, known, name):
        if "when" not in problem.path:  # it may be on a parameter that has a mistake
            yield problem


def _valid(section: Any, kind: TypeAdapter[Any]) -> dict[str, Any]:
    """Return the values of a section that are of this kind."""
    found = {}
    for name, value in section.items() if isinstance(section, Mapping) else ():
        with contextlib.suppress(ValidationError):
            found[name] = kind.validate_python(value)
    return found


def _absolute(trainable: str | None, source: Source) -> str | None:
    """Return the path of a user's file, which is given relative to the space file."""
    if trainable is None or not trainable.endswith(".py"):
        return trainable
    return os.path.abspath(source.folder / Path(trainable).expanduser())


def _no_trainable(name: str, source: Source) -> Problem:
    """Return the problem that there is no such training, with the nearest of the built-in ones and the files there."""
    found = "no such file" if name.endswith(".py") else "no such trainable"
    folder = Path(name).parent if (source.folder / Path(name).parent).is_dir() else Path()
    files = sorted(str(folder / file.name) for file in (source.folder / folder).glob("*.py"))
    names = files if name.endswith(".py") and files else [*TRAINABLES, *files]
    return Problem(("trainable",), f"found {format_value(name)}: {found}{did_you_mean(name, names)}")


_OWNERS: dict[str | int, Any] = {"objectives": Objective, "<Choice>": Choice, "<Range>": Range}
_OWNERS |= {section: Space.model_fields[section].annotation for section in ("data", "searcher", "stopping", "budget")}


def _find_problems(space: Space, trainable: Trainable | None) -> Iterator[Problem]:
    owner, known = space.trainable or "", trainable.PARAMETERS if trainable else None
    if not space.parameters:
        yield Problem(("parameters",), "nothing to search; name at least one parameter")
    yield from find_parameter_problems(space.parameters, space.fixed, known, owner)
    yield from find_baseline_problems(space.baseline, space.parameters, space.fixed, space.constraints)
    for name, parameter in space.parameters.items() if space.searcher.name != "gp" else ():
        if parameter.likely:
            yield Problem(
                ("parameters", name, "likely"), f"the searcher {space.searcher.name} has no use for it; gp has"
            )
    if len(space.objectives) < 2:
        yield Problem(("objectives",), f"found {len(space.objectives)}; a front needs two objectives or more")
    metrics = [objective.metric for objective in space.objectives]
    named: list[tuple[KeyPath, str]] = [(("objectives", i, "metric"), metric) for i, metric in enumerate(metrics)]
    for i, (path, metric) in enumerate(named):
        if metric in metrics[:i]:
            yield Problem(path, f"{metric} is listed twice; objectives must differ")
        if metric.startswith("test_"):
            yield Problem(path, f"{metric} is measured once, after the search; optimize a val_ metric instead")
    named += [(("constraints", i), constraint.metric) for i, constraint in enumerate(space.constraints)]
    reported = trainable.METRICS if trainable else None
    for target in targets_of(metrics):
        path = ("objectives", metrics.index(target.name), "metric")
        if reported is None:
            yield Problem(path, f"{target.name} needs a trainable that says what it reports")
            return
        if target.metric not in reported:
            yield Problem(path, f'{owner} reports no "{target.metric}"{did_you_mean(target.metric, reported)}')
        elif reported[target.metric].role not in ("quality", "loss"):
            qualities = ", ".join(name for name, metric in reported.items() if metric.role in ("quality", "loss"))
            yield Problem(path, f"{target.metric} says not how well it learned; there are {qualities}")
    if reported is not None:
        reported = {**reported, **target_metrics(targets_of(metrics), reported)}
    for path, metric in named:
        if reported is not None and metric not in reported:
            yield Problem(path, f'{owner} reports no "{metric}"{did_you_mean(metric, reported)}')
        elif reported is not None and space.evaluation == "probe" and not reported[metric].probed:
            yield Problem(path, f"a probe does not measure {metric}; leave it out, or set evaluation: coupled")
    for name in ("train_images", "val_images"):
        if (images := getattr(space.data, name)) is not None and images < 1:
            yield Problem(("data", name), f"found {images}; expected at least 1")
    yield from find_budget_problems(space.evaluation, space.parameters, space.searcher, space.stopping, space.budget)


def _flatten(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by dotted key; a parameter is one setting."""
    flat: dict[str, Any] = {}
    for section, content in mapping.items():
        nested = isinstance(content, Mapping)
        flat |= {f"{section}.{key}": value for key, value in content.items()} if nested else {section: content}
    return flat
