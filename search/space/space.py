"""What to search, and towards what: a space file becomes a `Space`, or one line that says what is wrong with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ValidationError

from search.front.objective import Constraint, Objective
from search.space.bounds import Bound, baseline_faults
from search.space.budget import Budget, Count, Evaluation, SearcherSettings, StoppingSettings, budget_faults
from search.space.faults import Fault, KeyPath, Source, SpaceError, malformed, nearest, shown
from search.space.parameters import (
    STRICT,
    AnyParameter,
    Choice,
    Listed,
    Mapped,
    Range,
    Scalar,
    ordered,
    parameter_faults,
    restricted,
    unmet,
)
from search.space.space_file import OVERLAY, merged, read
from trainables import contract
from trainables.contract import TRAINABLES, Data, Resources, Trainable, load_trainable

__all__ = [
    "Budget",
    "Choice",
    "Range",
    "SearcherSettings",
    "Space",
    "SpaceError",
    "StoppingSettings",
    "load_space",
    "parse_space",
]


MOST_POINTS = 100_000  # of a grid


class Space(BaseModel):
    """A checked space file. Each of `parameters` comes after those that its `when` names.

    `evaluation`: coupled trains every trial; decoupled first probes for the settings that give the best rate, and
    trains with those; probe only probes, for what takes no training. `baseline`, what people run today, is the first
    trial, as it is; constraints may be in parts of what it reaches.
    """

    model_config = STRICT
    trainable: str | None = None
    evaluation: Evaluation = "coupled"
    objectives: Annotated[tuple[Annotated[Objective, Mapped], ...], Listed]
    constraints: Annotated[tuple[Bound, ...], Listed] = ()
    parameters: dict[str, AnyParameter]
    fixed: dict[str, Scalar] = {}
    baseline: dict[str, Scalar] = {}
    data: Annotated[Data, Mapped] = Data()
    searcher: SearcherSettings = SearcherSettings()
    stopping: StoppingSettings = StoppingSettings()
    budget: Budget = Budget()
    concurrent_trials: Count = 1
    without_gpu: dict[str, Any] = {}

    @property
    def last_epoch(self) -> int:
        """The epoch at which a trial is complete; 0: a probe has none."""
        return 0 if self.evaluation == "probe" else self.budget.epochs

    @property
    def kind(self) -> Literal["train", "probe"]:
        """What the trials are that the budget counts."""
        return "probe" if self.evaluation == "probe" else "train"

    @property
    def stops_by(self) -> Literal["none", "halving", "forecast"]:
        """`stopping.name`, with `auto` decided."""
        if self.stopping.name != "auto":
            return self.stopping.name
        bounded = self.budget.hours is not None or self.budget.total_epochs is not None
        return "forecast" if self.searcher.name == "gp" and self.kind == "train" and bounded else "none"

    @property
    def bounds(self) -> tuple[Constraint, ...]:
        """The constraints, and what a trial cannot have more of than there is."""
        known = (load_trainable(self.trainable).METRICS if self.trainable else None) or {}
        limits = {name: metric.limit for name, metric in known.items() if metric.limit is not None}
        bounded = {c.metric for c in self.constraints if c.operator == "<=" and not c.of_baseline}
        more = (Constraint(name, "<=", limit) for name, limit in limits.items() if name not in bounded)
        return (*self.constraints, *more)

    def is_probed(self, objective: Objective) -> bool:
        """Whether a probe measures it, so that training for longer changes nothing."""
        known = load_trainable(self.trainable).METRICS if self.trainable else None
        if objective.probed is None and known is not None:
            return known[objective.metric].probed
        return bool(objective.probed)

    def bearing_on(self, what: Literal["probed", "trained"]) -> set[str]:
        """Names of the parameters that bear on the metrics that a probe measures, or on those that take training."""
        known = (load_trainable(self.trainable).PARAMETERS if self.trainable else None) or {}
        names = set()
        for name, parameter in self.parameters.items():
            said = parameter.bears_on or (known[name].bears_on if name in known else "all")
            if said in ("all", what):
                names.add(name)
        return names

    @property
    def tuned_by_probes(self) -> set[str]:
        """Names of the parameters that are set before a trial is trained: they bear on nothing that training tells."""
        return self.parameters.keys() - self.bearing_on("trained") if self.evaluation == "decoupled" else set()

    @property
    def grid_points(self) -> int | None:
        """How many configurations the grid has; None: the searcher is another."""
        return len(self.grid()) if self.searcher.name == "grid" else None

    @property
    def num_trials(self) -> int | None:
        """How many trials there can be at most; None: that is not bounded."""
        return min((n for n in (self.budget.trials, self.grid_points) if n is not None), default=None)

    def active(self, name: str, config: Mapping[str, Any]) -> bool:
        """Whether a parameter is in play, given the values of those that come before it."""
        values = {**self.fixed, **config}
        return all(other in values and values[other] in wanted for other, wanted in self.parameters[name].when.items())

    def share(self, total: Resources) -> Resources:
        """What one of the concurrent trials gets: whole nodes, or where these are too few its part of one.

        Raises:
            SpaceError: there is too little for so many.
        """
        trials, node = self.concurrent_trials, total.node
        nodes, on_one = max(1, total.nodes // trials), math.ceil(trials / total.nodes)  # of a trial; trials
        share = Resources(nodes * (node.cpus // on_one), nodes * (node.gpus // on_one), nodes)
        if share.cpus == 0 or (total.gpus and not share.gpus):
            raise SpaceError(
                f"concurrent_trials: {trials} trials cannot share {total.cpus} cores and {total.gpus} GPUs"
            )
        return share

    def restricted(self, resources: Resources) -> tuple[Space, list[str]]:
        """What these resources of one trial can do, and a line for each thing left out or changed.

        Raises:
            SpaceError: nothing is left of a parameter, or a fixed value cannot be done.
        """
        space, lines = self, list[str]()
        if self.without_gpu and resources.gpus == 0:
            space, line = self._overlaid()
            lines.append(line)
        refusal = _refusals(space.trainable, resources)
        for name, value in space.fixed.items():
            if reason := refusal(name, value):
                raise SpaceError(f"fixed.{name}: {shown(value)} cannot be done here: {reason}")
        kept: dict[str, Choice | Range] = {}
        for name, parameter in space.parameters.items():
            if never := unmet(parameter.when, kept, space.fixed):
                lines.append(f"{name}: left out, as {never} here")
                continue
            kept[name], without = restricted(name, parameter, refusal)
            lines += without
        for fault in baseline_faults(space.baseline, kept, space.fixed, ()):
            raise SpaceError(f"baseline: cannot be done here: {fault.message}")
        return space.model_copy(update={"parameters": kept}), lines

    def grid(self) -> list[dict[str, contract.Scalar]]:
        """All distinct choices of active parameters, without the `fixed` ones; the last parameter varies fastest.

        Raises:
            SpaceError: a parameter is a range, or there are too many.
        """
        configs: list[dict[str, contract.Scalar]] = [{}]
        for name, parameter in self.parameters.items():
            if isinstance(parameter, Range):
                raise SpaceError(f"parameters.{name}: a grid needs values, and this is a range")
            choices = [{name: value} for value in parameter.values]
            if len(configs) * len(choices) > MOST_POINTS:
                raise SpaceError(f"parameters: a grid of more than {MOST_POINTS:,} points; use another searcher")
            configs = [
                {**config, **choice}
                for config in configs
                for choice in (choices if self.active(name, config) else [{}])
            ]
        return configs

    def to_mapping(self) -> dict[str, Any]:
        """Plain data, fit for JSON, that `parse_space` reads back to an equal space."""
        return self.model_dump(mode="json")

    def _overlaid(self) -> tuple[Space, str]:
        """The space of a machine without GPU, and what is different in it."""
        before = {**self.to_mapping(), OVERLAY: {}}
        space = parse_space(merged(before, self.without_gpu), OVERLAY)
        old, new = _flat(before), _flat(space.to_mapping())
        changed = [key for key in old | new if old.get(key) != new.get(key)]
        return space, f"no GPU here: {OVERLAY} sets {', '.join(changed) or 'nothing else'}"


def load_space(path: Path, overrides: Sequence[str] = ()) -> Space:
    """The space of a YAML file, checked whole, with `a.b=value` settings over it.

    Raises:
        SpaceError: the first fault, with file and line.
    """
    return _parse(*read(path, overrides))


def parse_space(mapping: Mapping[str, Any], origin: str = "space") -> Space:
    """The same from plain data; messages begin with `origin`.

    Raises:
        SpaceError: the first fault.
    """
    return _parse(mapping, Source(origin))


def _parse(mapping: Mapping[str, Any], source: Source) -> Space:
    space = _checked(mapping, source)
    if OVERLAY in space.without_gpu:
        raise source.error(Fault((OVERLAY, OVERLAY), "found within itself; leave it out"))
    if space.without_gpu:
        _checked(merged({**mapping, OVERLAY: {}}, space.without_gpu), source.overlaid(OVERLAY))
    return space


def _checked(mapping: Mapping[str, Any], source: Source) -> Space:
    try:
        space = Space.model_validate(mapping)
        trainable = load_trainable(space.trainable) if space.trainable is not None else None
    except ValidationError as error:
        raise source.error(_first(error)) from None
    except LookupError:
        name = mapping["trainable"]
        raise source.error(Fault(("trainable",), f"found {shown(name)}{nearest(name, TRAINABLES)}")) from None
    space = _typed(space, trainable)
    for fault in _faults(space, trainable):
        raise source.error(fault)
    return space.model_copy(update={"parameters": ordered(space.parameters)})


_OWNERS: dict[str | int, type] = {
    "objectives": Objective,
    "<Choice>": Choice,
    "<Range>": Range,
    "data": Data,
    "searcher": SearcherSettings,
    "stopping": StoppingSettings,
    "budget": Budget,
}


def _first(error: ValidationError) -> Fault:
    """The fault to tell first. What is missing comes last: it may be there under a wrong name."""
    detail = min(error.errors(include_url=False), key=lambda detail: detail["type"] == "missing")
    enclosing = detail["loc"] if detail["type"] in ("model_type", "dataclass_type") else detail["loc"][:-1]
    owner = next((_OWNERS[part] for part in reversed(enclosing) if part in _OWNERS), Space)
    return malformed(detail, owner.__annotations__)


def _typed(space: Space, trainable: Trainable | None) -> Space:
    """Ranges are over whole numbers where the trainable takes nothing else and the file does not say."""
    known = (trainable.PARAMETERS if trainable else None) or {}
    whole = {name for name, parameter in known.items() if parameter.type == "int"}
    parameters = {
        name: parameter.model_copy(update={"type": "int"})
        if name in whole and isinstance(parameter, Range) and "type" not in parameter.model_fields_set
        else parameter
        for name, parameter in space.parameters.items()
    }
    return space.model_copy(update={"parameters": parameters})


def _faults(space: Space, trainable: Trainable | None) -> Iterator[Fault]:
    """All that is wrong with a well-formed space."""
    owner = space.trainable or ""
    if not space.parameters:
        yield Fault(("parameters",), "nothing to search; name at least one parameter")
    yield from parameter_faults(space.parameters, space.fixed, trainable.PARAMETERS if trainable else None, owner)
    yield from baseline_faults(space.baseline, space.parameters, space.fixed, space.constraints)
    yield from _metric_faults(space, trainable.METRICS if trainable else None, owner)
    yield from _data_faults(space.data)
    yield from budget_faults(space.evaluation, space.parameters, space.searcher, space.stopping, space.budget)


def _metric_faults(space: Space, known: Mapping[str, contract.Metric] | None, owner: str) -> Iterator[Fault]:
    if len(space.objectives) < 2:
        yield Fault(("objectives",), f"found {len(space.objectives)}; a front needs two objectives or more")
    metrics = [objective.metric for objective in space.objectives]
    for i, metric in enumerate(metrics):
        if metric in metrics[:i]:
            yield Fault(("objectives", i, "metric"), f"{metric} is there twice; objectives must differ")
        if metric.startswith("test_"):
            yield Fault(("objectives", i, "metric"), f"{metric} is read once, at the end; search by a val_ metric")
    named: list[tuple[KeyPath, str]] = [(("objectives", i, "metric"), metric) for i, metric in enumerate(metrics)]
    named += [(("constraints", i), constraint.metric) for i, constraint in enumerate(space.constraints)]
    for path, metric in named:
        if known is not None and metric not in known:
            yield Fault(path, f'{owner} reports no "{metric}"{nearest(metric, known)}')
        elif known is not None and space.evaluation == "probe" and not known[metric].probed:
            yield Fault(path, f"a probe does not measure {metric}; leave it out, or set evaluation: coupled")


def _data_faults(data: Data) -> Iterator[Fault]:
    for name in ("train_images", "val_images"):
        count = getattr(data, name)
        if count is not None and count < 1:
            yield Fault(("data", name), f"found {count}; expected at least 1")


def _refusals(trainable: str | None, resources: Resources) -> Callable[[str, contract.Scalar], str | None]:
    """Why a parameter cannot have a value with these resources; None: it can."""
    if trainable is None:
        return lambda parameter, value: None
    unavailable = load_trainable(trainable).unavailable
    return lambda parameter, value: unavailable(parameter, value, resources)


def _flat(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by dotted key; a parameter is one setting."""
    flat: dict[str, Any] = {}
    for section, content in mapping.items():
        if isinstance(content, Mapping):
            flat |= {f"{section}.{key}": value for key, value in content.items()}
        else:
            flat[section] = content
    return flat
