"""Part of a space that a machine can run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from search.space.parameters import Choice, Range, explain_unsatisfiable, find_baseline_problems
from search.space.parsing import parse_space
from search.space.space import Space
from search.space.space_file import OVERLAY, merge_settings
from search.space.validation import Source, SpaceError
from trainables.contract import Resources, Scalar, load_trainable
from trainables.setting_check import format_value


def for_machine(space: Space, total: Resources) -> tuple[Space, list[str]]:
    """Return the part of the space that a machine can run, and a line for each thing that is other or left out.

    Raises:
        SpaceError: no value of a parameter is available, a fixed value is not, or the search would never end.
    """
    space, changed = _without_gpu(space, total)  # which may say how many trials share the machine
    space, left_out = _restrict_to(space, space.resources_per_trial(total))
    return space, [*changed, *left_out]


def _without_gpu(space: Space, resources: Resources) -> tuple[Space, list[str]]:
    """Return the space as it is to be without a GPU, if there is none, and a line that says so."""
    lines = list[str]()
    if space.without_gpu and resources.gpus == 0:
        before = {**space.to_mapping(), OVERLAY: {}}
        space = parse_space(merge_settings(before, space.without_gpu), Source(OVERLAY))
        old, new = _flatten(before), _flatten(space.to_mapping())
        changed = ", ".join(key for key in old | new if old.get(key) != new.get(key))
        lines.append(f"no GPU here: {OVERLAY} sets {changed or 'nothing else'}")
    return space, lines


def _restrict_to(space: Space, resources: Resources) -> tuple[Space, list[str]]:
    """Return the part of the space that one trial's resources can run, and a line for each thing left out."""
    lines = list[str]()
    if resources.gpus == 0 and not (space.budget.limited_anywhere or space.grid_points):
        raise SpaceError("budget.gpu_hours: no GPU here: nothing is counted; set trials, hours or total_epochs")
    trainable = load_trainable(space.trainable) if space.trainable else None

    def reason_against(name: str, value: Scalar) -> str | None:
        return trainable.unavailable(name, value, resources) if trainable else None

    superseded = getattr(trainable, "superseded", None)

    def left_out_because(name: str, parameter: Choice, value: Scalar) -> str | None:
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
    if not kept:
        raise SpaceError(f"parameters: nothing is left to search here: {'; '.join(lines)}")
    for problem in find_baseline_problems(space.baseline, kept, space.fixed, (), known=None):
        raise SpaceError(f"baseline: not available here: {problem.message}")
    listed = {name: parameter.values for name, parameter in kept.items() if isinstance(parameter, Choice)}
    for name, parameter in kept.items():  # which may name values that are left out
        when = {other: tuple(still_there(wanted, listed.get(other))) for other, wanted in parameter.when.items()}
        kept[name] = parameter = parameter.model_copy(update={"when": when})
        if isinstance(parameter, Choice):
            likely = tuple(still_there(parameter.likely, parameter.values))
            kept[name] = parameter.model_copy(update={"likely": likely})
    return space.model_copy(update={"parameters": kept}), lines


def still_there(named: Iterable[Any], values: Collection[Any] | None) -> list[Any]:
    """Return those of the values that a `when` or `likely` names that are still listed; None: of a range, all are."""
    return [value for value in named if values is None or value in values]


def _flatten(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by dotted key; a parameter is one setting."""
    flat: dict[str, Any] = {}
    for section, content in mapping.items():
        nested = isinstance(content, Mapping)
        flat |= {f"{section}.{key}": value for key, value in content.items()} if nested else {section: content}
    return flat
