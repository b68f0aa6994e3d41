"""Reader of space files: returns a checked `Space`, or raises a `SpaceError` with a line for each problem."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from search.front.objective import Objective
from search.front.targets import QUANTITIES, target_metrics, targets_of
from search.space.budget import find_budget_problems
from search.space.parameters import (
    Choice,
    Range,
    find_baseline_problems,
    find_parameter_problems,
    sort_by_dependency,
    unknown_setting,
)
from search.space.space import Space
from search.space.space_file import OVERLAY, merge_settings, read_space_file
from search.space.validation import KeyPath, Problem, Source, SpaceError, translate_error
from trainables.contract import EPOCHS, TRAINABLES, Metric, Trainable, load_trainable
from trainables.setting_check import did_you_mean, format_value

UNKNOWN_KEY = ("extra_forbidden", "unexpected_keyword_argument")  # to pydantic
ENTRIES = ("objectives", "constraints", "parameters", "fixed", "baseline")  # sections with entries of one kind
OF_BUDGET = {"evaluation", "parameters", "fixed", "searcher", "stopping", "budget"}  # sections that limit each other
UNKNOWN_SOURCE = Source("space")


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
    if not space.without_gpu:
        return space
    without_gpu = {**space.without_gpu}
    if isinstance(name := without_gpu.get("trainable"), str):
        without_gpu["trainable"] = _absolute(name, source)
    try:
        _check(merge_settings({**mapping, OVERLAY: {}}, without_gpu), source.overlaid(OVERLAY))
    except SpaceError as error:
        raise SpaceError("\n".join(f"{line} (with what {OVERLAY} sets)" for line in str(error).splitlines())) from None
    return space.model_copy(update={OVERLAY: without_gpu})


def _check(mapping: Mapping[str, Any], source: Source) -> Space:
    try:
        space, trainable = _read(mapping, source)
    except ValidationError as error:
        raise source.errors([*_translated(error), *_further_problems(mapping, error, source)]) from None
    except LookupError as error:
        name = mapping["trainable"]
        if os.path.isfile(_absolute(name, source) or ""):  # the error has its own file and line
            raise SpaceError(str(error)) from None
        raise source.error(_no_trainable(name, source)) from None
    except ImportError as error:
        raise source.error(Problem(("trainable",), f"found {format_value(mapping['trainable'])}: {error}")) from None
    if problems := [*_find_problems(space, trainable), *_budget_problems(space)]:
        raise source.errors(problems)
    return space.model_copy(update={"parameters": sort_by_dependency(space.parameters)})


def _read(mapping: Mapping[str, Any], source: Source) -> tuple[Space, Trainable | None]:
    """Return the content and its training.

    Raises:
        ValidationError: a key or value has another form.
        LookupError, ImportError: there is no such training.
    """
    space = Space.model_validate(mapping)
    name = _absolute(space.trainable, source)
    trainable = load_trainable(name) if name is not None else None
    if trainable is not None and not hasattr(trainable, "PARAMETERS"):
        raise LookupError(name)
    parameters = _with_whole_ranges(space.parameters, trainable)
    return space.model_copy(update={"trainable": name, "parameters": parameters}), trainable


def _with_whole_ranges(
    parameters: Mapping[str, Choice | Range], trainable: Trainable | None
) -> dict[str, Choice | Range]:
    """Return ranges over whole numbers where the trainable accepts nothing else and the file does not say."""
    whole = {name for name, known in ((trainable and trainable.PARAMETERS) or {}).items() if known.type == "int"}
    return {
        name: parameter.model_copy(update={"type": "int"})
        if name in whole and isinstance(parameter, Range) and "type" not in parameter.model_fields_set
        else parameter
        for name, parameter in parameters.items()
    }


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


def _further_problems(mapping: Mapping[str, Any], error: ValidationError, source: Source) -> Iterator[Problem]:
    """Yield the problems of all that has the right form, but for those that may follow from what has not."""
    wrong = {detail["loc"][:2] for detail in error.errors()}
    sections = {f"{path[0]}" for path in wrong}
    if "trainable" in sections:
        return
    right: dict[str, Any] = {"objectives": [], "parameters": {}}
    places = dict[str, list[Any]]()  # of entries that are right, in the file
    for key, value in mapping.items():
        if key not in sections:
            right[key] = value
        elif key in ENTRIES and (key,) not in wrong:
            entries = value.items() if isinstance(value, Mapping) else enumerate(value)
            kept = {place: entry for place, entry in entries if (key, place) not in wrong}
            right[key], places[key] = kept if isinstance(value, Mapping) else list(kept.values()), list(kept)
    try:
        space, trainable = _read(right, source)
    except (ValidationError, LookupError, ImportError):
        return
    if trainable and (known := trainable.PARAMETERS) is not None:
        owner, of_settings = Path(space.trainable or "").name, (p for p in wrong if p[0] in ("parameters", "fixed"))
        yield from (unknown_setting(p, known, owner) for p in sorted(of_settings) if len(p) > 1 and p[1] not in known)
    for problem in [*_find_problems(space, trainable), *(() if sections & OF_BUDGET else _budget_problems(space))]:
        section, *rest = problem.path
        if (section in sections and not rest) or (section == "baseline" and sections & {"parameters", "fixed"}):
            continue
        if rest[1:2] == ["when"] and wrong & {(key, name) for key in ("parameters", "fixed") for name in rest[2:]}:
            continue  # it depends on a parameter with a mistake
        if rest and isinstance(rest[0], int) and section in places:
            rest[0] = places[section][rest[0]]
        yield Problem((section, *rest), problem.message)


def _absolute(trainable: str | None, source: Source) -> str | None:
    """Return the path of a user's file, which is given relative to the space file."""
    if trainable is None or not trainable.endswith(".py"):
        return trainable
    return os.path.abspath(source.folder / os.path.expanduser(trainable))


def _no_trainable(name: str, source: Source) -> Problem:
    """Return the problem that there is no such training, with the nearest of the built-in ones and the files there."""
    found = "no such file" if name.endswith(".py") else "no such trainable"
    folder = Path(name).parent if (source.folder / Path(name).parent).is_dir() else Path()
    files = sorted(str(folder / file.name) for file in (source.folder / folder).glob("*.py") if file.is_file())
    names = files if name.endswith(".py") and files else [*TRAINABLES, *files]
    return Problem(("trainable",), f"found {format_value(name)}: {found}{did_you_mean(name, names)}")


_OWNERS: dict[str | int, Any] = {"objectives": Objective, "<Choice>": Choice, "<Range>": Range}
_OWNERS |= {section: Space.model_fields[section].annotation for section in ("data", "searcher", "stopping", "budget")}


def _reversed_goals(i: int, objective: Objective, metric: Metric | None, owner: str) -> Iterator[Problem]:
    """Yield an objective whose goal is the opposite of what the training says of the metric, unless it guessed."""
    if metric is None or metric.role is None or metric.role_is_guess:
        return
    if objective.goal != metric.goal:
        message = f"found {objective.goal}; {owner} says of {objective.metric}: {metric.goal}"
        yield Problem(("objectives", i, "goal"), message)


def _contradictions(space: Space) -> Iterator[Problem]:
    """Find constraints that no trial can satisfy together."""
    least, most = dict[str, float](), dict[str, float]()
    for i, constraint in enumerate(space.constraints):
        if constraint.of_baseline:
            continue
        metric, bound = constraint.metric, constraint.bound
        if constraint.operator == ">=":
            least[metric] = max(bound, least.get(metric, bound))
        else:
            most[metric] = min(bound, most.get(metric, bound))
        if least.get(metric, -math.inf) > most.get(metric, math.inf):
            yield Problem(
                ("constraints", i), f"{metric} cannot be {least[metric]:g} or more and {most[metric]:g} or less"
            )


def _find_problems(space: Space, trainable: Trainable | None) -> Iterator[Problem]:
    owner, known = Path(space.trainable or "").name, trainable.PARAMETERS if trainable else None
    if not space.parameters:
        yield Problem(("parameters",), "nothing to search; name at least one parameter")
    of_parameters = list(find_parameter_problems(space.parameters, space.fixed, known, owner))
    yield from of_parameters
    if not any("parameters" in problem.path for problem in of_parameters):  # else a right baseline may look wrong
        yield from find_baseline_problems(space.baseline, space.parameters, space.fixed, space.constraints, known)
    for name, parameter in space.parameters.items() if space.searcher.name != "gp" else ():
        if parameter.likely:
            yield Problem(("parameters", name, "likely"), "only the searcher gp uses it; leave it out")
    if len(space.objectives) < 2:
        yield Problem(("objectives",), f"found {len(space.objectives)}; a front needs two objectives or more")
    metrics = [objective.metric for objective in space.objectives]
    named: list[tuple[KeyPath, str]] = [(("objectives", i, "metric"), metric) for i, metric in enumerate(metrics)]
    for i, (path, metric) in enumerate(named):
        if metric in metrics[:i]:
            yield Problem(path, f"{metric} is listed twice; objectives must differ")
        if metric.startswith("test_"):
            yield Problem(path, f"{metric} is measured once, after the search; optimize a val_ metric instead")
    for i, constraint in enumerate(space.constraints):
        if constraint.metric.startswith("test_"):
            message = f"{constraint.metric} is measured once, after the search; bound a val_ metric instead"
            yield Problem(("constraints", i), message)
        named.append((("constraints", i), constraint.metric))
    yield from _contradictions(space)
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
            yield Problem(path, f"{target.metric} does not say how well a training learned; use one of {qualities}")
    if reported is not None:
        reported = {**reported, **target_metrics(targets_of(metrics), reported)}
        for i, objective in enumerate(space.objectives):
            yield from _reversed_goals(i, objective, reported.get(objective.metric), owner)
    for path, metric in named:
        if reported is not None and metric not in reported:
            yield Problem(path, f'{owner} reports no "{metric}"{did_you_mean(metric, reported)}')
        elif reported is not None and space.evaluation == "probe" and not reported[metric].probed:
            yield Problem(path, f"a probe does not measure {metric}; leave it out, or set evaluation: coupled")
    for name in ("train_images", "val_images"):
        if (images := getattr(space.data, name)) is not None and images < 1:
            yield Problem(("data", name), f"found {images}; expected at least 1")


def _budget_problems(space: Space) -> Iterator[Problem]:
    length = space.fixed.get(EPOCHS)
    yield from find_budget_problems(
        space.evaluation, space.parameters, space.searcher, space.stopping, space.budget, length
    )
