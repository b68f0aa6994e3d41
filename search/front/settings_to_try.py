"""Settings to try beside a configuration: its neighbours, with one setting changed that affects its rate."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from search.front.neighbour import Neighbour
from trainables.contract import Bound, Config, InfeasibleError, Parameter, Resources, Scalar, Trainable

# Settings that change what is learned, too, but neither the network nor what is asked of it.
ALSO_LEARNED = ("batch_size", "precision", "strategy", "num_microbatches")
NOT_TRIED = ("trace_steps", "placement", "seed")  # a recording, and what one node cannot show
FACTORS = {"batch_size": (2.0, 0.5), "num_microbatches": (2.0, 0.5), "threads": (2.0, 0.5)}
STEPS = {"num_workers": (1, 2, -1)}  # added


# Settings to try first, by what bounds a step.
FIRST: Mapping[Bound, tuple[str, ...]] = {
    "input": ("loader", "num_workers", "pin_memory"),
    "transfer": ("loader", "pin_memory", "precision"),
    "host": ("cuda_graphs", "compile", "batch_size"),
    "compute": ("precision", "conv_kernel", "memory_format", "threads", "compile", "batch_size"),
    "memory": ("precision", "memory_format", "allocator", "batch_size"),
    "communication": ("strategy", "batch_size", "num_microbatches"),
}


def neighbours(
    trainable: Trainable,
    config: Config,
    resources: Resources,
    searched: Mapping[str, Iterable[Scalar]],
    bound_by: Bound | None = None,
    ruled_out: Collection[str] = (),
) -> list[Neighbour]:
    """Return the neighbours that these resources allow.

    First come those that promise most by what bounds a step, then those that change the rate alone, then those with
    another layout; at last those that are slow to start.
    `searched`: values that a space lists, by parameter; `ruled_out`: settings that are not to be tried, by `name` or
    `name=value`.
    """
    known = trainable.PARAMETERS or {}
    config = {**{name: row.default for name, row in known.items()}, **config}
    own = {name for row in trainable.STRATEGIES.values() for name in row.settings}
    used = trainable.STRATEGIES[str(config["strategy"])].settings if "strategy" in config else ()
    meanings = trainable.meanings_of_auto(resources) if hasattr(trainable, "meanings_of_auto") else {}
    unused = trainable.without_effect(config) if hasattr(trainable, "without_effect") else ()
    usual = trainable.layout(config, resources)
    found = []
    for name, parameter in known.items():
        if name in (*NOT_TRIED, *ruled_out, *unused) or (name in own and name not in used):
            continue
        if parameter.affects != "probed" and name not in ALSO_LEARNED:
            continue
        values = list(_values(name, parameter, config.get(name), searched.get(name, ()), resources))
        for value in values:
            same = {"auto", meanings.get(name)} == {config.get(name), value}
            twice = value == "auto" and meanings.get(name) in values
            if same or twice or f"{name}={value}" in ruled_out or trainable.unavailable(name, value, resources):
                continue
            try:
                layout = trainable.layout({**config, name: value}, resources)
            except (InfeasibleError, ValueError):
                continue
            found.append(Neighbour(name, config.get(name), value, parameter.affects != "probed", layout))
    order = FIRST[bound_by] if bound_by else ()

    def key(each: Neighbour) -> tuple[bool, int, bool, bool]:
        place = order.index(each.parameter) if each.parameter in order else len(order)
        return each.is_slow_to_start, place, each.layout != usual, each.changes_learning

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
    near += [value for value in listed if value > usual][:1] + [value for value in listed if value < usual][-1:]
    for value in dict.fromkeys(near):
        if value != usual and value >= low and (high is None or value <= high):
            yield value
