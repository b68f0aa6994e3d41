"""Neighbours of a configuration: one setting changed that bears on its rate."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainables.contract import Config, InfeasibleError, Layout, Parameter, Resources, Scalar, Trainable

# Settings that change what is learned, too, but neither the network nor what is asked of it.
ALSO_LEARNED = ("batch_size", "precision", "strategy", "num_microbatches")
NOT_TRIED = ("trace_steps", "placement", "seed")  # a recording, and what one node cannot show
FACTORS = {"batch_size": (2.0, 0.5), "num_microbatches": (2.0, 0.5), "threads": (2.0, 0.5)}
STEPS = {"num_workers": (1, 2, -1)}  # added


@dataclass(frozen=True)
class Change:
    """A setting with another value; `layout` of the configuration with it."""

    parameter: str
    old: Scalar | None
    new: Scalar
    layout: Layout
    changes_learning: bool

    def of(self, config: Config) -> dict[str, Any]:
        """Return the configuration with the change."""
        return {**config, self.parameter: self.new}


def neighbours(
    trainable: Trainable,
    config: Config,
    resources: Resources,
    searched: Mapping[str, Iterable[Scalar]],
    first: Collection[str] = (),
) -> list[Change]:
    """Return the changes that these resources allow.

    Those of the `first` parameters come first, then those that change the rate alone, then those with another layout.
    `config` has all parameters; `searched`: values that a space lists, by parameter.
    """
    known = trainable.PARAMETERS or {}
    own = {name for row in trainable.STRATEGIES.values() for name in row.settings}
    used = trainable.STRATEGIES[str(config["strategy"])].settings if "strategy" in config else ()
    meanings = trainable.meanings_of_auto(resources) if hasattr(trainable, "meanings_of_auto") else {}
    usual = trainable.layout(config, resources)
    found = []
    for name, parameter in known.items():
        if name in NOT_TRIED or (name in own and name not in used):
            continue
        if parameter.affects != "probed" and name not in ALSO_LEARNED:
            continue
        for value in _values(name, parameter, config.get(name), searched.get(name, ()), resources):
            same = config.get(name) == "auto" and meanings.get(name) == value
            if same or trainable.unavailable(name, value, resources):
                continue
            try:
                layout = trainable.layout({**config, name: value}, resources)
            except (InfeasibleError, ValueError):
                continue
            found.append(Change(name, config.get(name), value, layout, parameter.affects != "probed"))
    order = list(first)

    def key(change: Change) -> tuple[int, bool, bool]:
        place = order.index(change.parameter) if change.parameter in order else len(order)
        return place, change.layout != usual, change.changes_learning

    return sorted(found, key=key)


def _values(
    name: str, parameter: Parameter, now: Scalar | None, searched: Iterable[Scalar], resources: Resources
) -> Iterator[Scalar]:
    """Yield other values: all choices, the other truth value, or numbers nearby."""
    if parameter.choices or parameter.type == "bool":
        yield from (value for value in parameter.choices or (False, True) if value != now)
        return
    usual = resources.node.cpus if name == "threads" and now is None else now
    if isinstance(usual, bool) or not isinstance(usual, int):
        return
    near = [round(usual * factor) for factor in FACTORS.get(name, ())] + [usual + n for n in STEPS.get(name, ())]
    low, high = parameter.low or 0, resources.node.cpus if name in ("num_workers", "threads") else None
    listed = sorted({value for value in searched if isinstance(value, int)})
    near += [value for value in (_next(listed, usual), _next(listed[::-1], usual)) if value is not None]
    for value in dict.fromkeys(near):
        if value != usual and value >= low and (high is None or value <= high):
            yield value


def _next(values: list[int], now: int) -> int | None:
    """Return the value after `now` in a sorted list."""
    after = [value for value in values if (value > now if values[0] < values[-1] else value < now)] if values else []
    return after[0] if after else None
