"""What a run would do, before anything is started: for `--dry-run`."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from search.machine import Machine
from search.parameters import Choice
from search.space import Space
from search.wording import about, count, setting
from trainables.contract import Config, Cost, Data, InfeasibleError, Resources, load_trainable

WIDTH = 80  # columns
GIB = 2**30
TRIAL_OVERHEAD_SECONDS = 0.2
PROBE_SECONDS = 10.0  # at most, and less on a GPU
START_SECONDS = 20.0  # Ray and the first workers
KEPT_CHECKPOINTS = 10  # those of a usual front


@dataclass(frozen=True)
class Estimate:
    """What a run may take, from one configuration timed for a moment."""

    config: Config
    cost: Cost | None  # None: not asked for, or even that one cannot run
    why_not: str | None
    seconds: float | None  # None: nothing bounds the trials but time, or nothing is known
    disk_gib: float | None  # None: not known, or nothing is kept


def estimate(space: Space, data: Data) -> Estimate:
    """Time a few steps of one configuration in this process, and scale up; probes take what they take."""
    assert space.trainable is not None
    trials = space.num_trials
    config = {**space.fixed, **{n: _middle(p) for n, p in space.parameters.items() if not p.when}}
    if space.evaluation == "probe":
        return Estimate(config, None, None, _bounded(space, trials and trials * PROBE_SECONDS), None)
    try:
        cost = load_trainable(space.trainable).estimate(config, data)
    except InfeasibleError as error:
        return Estimate(config, None, str(error), None, None)
    total_epochs = min(
        (x for x in (space.budget.total_epochs, trials and trials * space.budget.epochs) if x), default=None
    )
    training = total_epochs and total_epochs * cost.images_per_epoch / cost.images_per_second
    kept = min(KEPT_CHECKPOINTS, trials or KEPT_CHECKPOINTS) + space.concurrent_trials
    return Estimate(config, cost, None, _bounded(space, training), kept * cost.checkpoint_bytes / GIB)


def _bounded(space: Space, working_seconds: float | None) -> float | None:
    """Of the whole run; `working_seconds` of all trials, one after another, None: their number is not bounded."""
    bounds = [space.budget.hours and space.budget.hours * 3600]
    if working_seconds is not None:
        overhead = START_SECONDS + (space.num_trials or 0) * TRIAL_OVERHEAD_SECONDS
        bounds.append(overhead + working_seconds / space.concurrent_trials)
    return min((b for b in bounds if b), default=None)


def describe_plan(
    space: Space, data: str, machine: Machine, share: Resources, left_out: Sequence[str], guess: Estimate
) -> str:
    """The plan as text, at most 80 columns where the names allow it."""
    lines = [*_entry("trainable", str(space.trainable)), *_entry("data", data), *_entry("machine", str(machine))]
    nodes = f", on {share.nodes} nodes" if share.nodes > 1 else ""
    lines += _entry("per trial", f"{count(share.cpus, 'core')}, {count(share.gpus, 'GPU')}{nodes}")
    lines += [f"objective    {o.metric}, {o.goal}" for o in space.objectives]
    lines += [f"constraint   {c}" for c in space.constraints]
    lines.append(f"searcher     {space.searcher.name}, seed {space.searcher.seed}; stopping: {space.stopping.name}")
    lines.append(f"budget       {_budget(space)}")
    lines += ["", "searched"] + [f"  {name:<16}{_choices(p)}" for name, p in space.parameters.items()]
    if space.fixed:
        lines += ["", "fixed"] + [f"  {name:<16}{setting(value)}" for name, value in space.fixed.items()]
    if left_out:
        lines += ["", "left out here"]
        lines += [
            row
            for line in left_out
            for row in textwrap.wrap(line, WIDTH, initial_indent="  ", subsequent_indent="    ")
        ]
    return "\n".join([*lines, "", *_estimate_lines(guess)])


def _estimate_lines(guess: Estimate) -> list[str]:
    settings = ", ".join(f"{name}={setting(value)}" for name, value in guess.config.items())
    if guess.why_not is not None:
        return _entry("time", f"not estimated: {guess.why_not} ({settings})")
    time = "until it is stopped" if guess.seconds is None else f"at most {about(guess.seconds)}"
    if guess.cost is None:
        return _entry("time", f"{time}: a probe takes up to {PROBE_SECONDS:.0f} s")
    rate = f"a few steps of one configuration gave {guess.cost.images_per_second:,.0f} images/s"
    return [
        *_entry("time", f"{time}: {rate}; evaluation is not in it, others differ. It was {settings}"),
        *_entry("disk", f"about {guess.disk_gib:.2f} GiB, for the checkpoints of a front of {KEPT_CHECKPOINTS}"),
    ]


def _entry(name: str, text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=f"{name:<13}", subsequent_indent=" " * 13, break_on_hyphens=False)


def _budget(space: Space) -> str:
    budget = space.budget
    parts = [
        budget.trials and count(budget.trials, "trial"),
        budget.total_epochs and f"{count(budget.total_epochs, 'epoch')} in all",
        budget.hours and f"{budget.hours:g} h",
    ]
    length = count(1, "probe") if space.evaluation == "probe" else count(budget.epochs, "epoch")
    points = f"all {count(space.num_trials, 'grid point')}" if space.num_trials else ""
    return f"{length} a trial; " + (" or ".join(p for p in parts if p) or points)


def _choices(parameter: Any) -> str:
    if isinstance(parameter, Choice):
        text = ", ".join(setting(value) for value in parameter.values)
    else:
        text = f"{parameter.min:g} to {parameter.max:g}" + (", log" if parameter.log else "")
    when = " and ".join(f"{name} is {' or '.join(map(setting, wanted))}" for name, wanted in parameter.when.items())
    return f"{text}  (when {when})" if when else text


def _middle(parameter: Any) -> Any:
    """A value that is neither extreme."""
    if isinstance(parameter, Choice):
        return parameter.values[len(parameter.values) // 2]
    middle = (parameter.min * parameter.max) ** 0.5 if parameter.log else (parameter.min + parameter.max) / 2
    return round(middle) if parameter.type == "int" else middle
