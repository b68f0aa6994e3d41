"""Estimate of a run: epochs, probes, wall time and disk, each as a range, by timing a few configurations."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from search.advisor.rungs import rungs
from search.space.machine import GIB, CoresOfOthers
from search.space.parameters import Choice
from search.space.space import Space
from trainables.contract import Config, Cost, Data, InfeasibleError, OwnCodeError

START_SECONDS = 20.0  # Ray and the first workers
TRIAL_OVERHEAD_SECONDS = 0.2
PROBE_SECONDS = (2.0, 10.0)
KEPT_CHECKPOINTS = 10  # those of a usual front
FORWARD = 1 / 3  # work of evaluating an image, as a fraction of training on it
POSITIONS = (0.5, 0.0, 1.0)  # among a parameter's values, of the configurations that are timed
ENOUGH_SECONDS = 5.0  # of timing, after the first configuration; those that have not begun by then are left out

Span = tuple[float, float]  # least, most


@dataclass(frozen=True)
class Timed:
    """Configuration and the cost measured by a few of its steps; None: there is none, for the reason given."""

    config: Config
    cost: Cost | None
    why_not: str | None = None  # it cannot run here
    error: str | None = None  # of a user's code, which may be one of this configuration alone


@dataclass(frozen=True)
class RunEstimate:
    """Ranges from least to most; None: unbounded or unknown."""

    timed: tuple[Timed, ...]  # none: nothing is trained
    trials: Span | None  # of full length, as many as fit into the hours, where nothing else bounds them
    epochs: Span | None  # of all trials together
    probes: Span | None  # before trials, for the settings that affect only rates
    seconds: Span | None  # of the whole run
    disk_gib: float | None  # None: not known, or nothing is kept
    cores_of_others: float = 0.0  # that other processes used during the timing, in the mean

    @property
    def costs(self) -> list[Cost]:
        """Costs of the configurations that could be timed."""
        return [timed.cost for timed in self.timed if timed.cost is not None]


def estimate(space: Space, data: Data, clock: Callable[[], float] = time.perf_counter) -> RunEstimate:
    """Time a few steps of up to three configurations in this process, and scale up; probes have a fixed range."""
    if space.evaluation == "probe":
        return untimed(space)
    trials = space.max_trials
    others = CoresOfOthers()
    timed = tuple(_timed(space, data, clock))
    cores_of_others = others()
    costs = [each.cost for each in timed if each.cost is not None]
    epochs, probes = _epochs(space), _probes(space)
    if not costs:
        return RunEstimate(timed, None, epochs, probes, None, None, cores_of_others)
    epoch_seconds = [  # of training and validation
        (c.samples_per_epoch + FORWARD * data.val_images * (c.samples_per_epoch > 0)) / c.samples_per_second
        for c in costs
    ]
    epoch = min(epoch_seconds), max(epoch_seconds)
    working = None if epochs is None else _sum(_scaled(epoch, epochs), _scaled(PROBE_SECONDS, probes or (0, 0)))
    kept = min(KEPT_CHECKPOINTS, trials or KEPT_CHECKPOINTS) + space.concurrent_trials
    sizes = [cost.checkpoint_bytes for cost in costs if cost.checkpoint_bytes is not None]
    disk = kept * max(sizes) / GIB if sizes else None
    seconds = _bounded(space, working)
    if epochs is not None and space.budget.hours is not None and epoch[0] > 0:
        slowest, fastest = (
            math.ceil(space.concurrent_trials * space.budget.hours * 3600 / each) for each in epoch[::-1]
        )
        epochs = min(epochs[0], slowest), min(epochs[1], fastest)
    return RunEstimate(timed, _fitting(space, epoch), epochs, probes, seconds, disk, cores_of_others)


def untimed(space: Space) -> RunEstimate:
    """Return what is known of a run without timing anything, which is all of a run of probes."""
    if space.evaluation == "probe":
        trials = space.max_trials
        seconds = _bounded(space, None if trials is None else _scaled(PROBE_SECONDS, (trials, trials)))
        return RunEstimate((), None, None, None, seconds, None)
    return RunEstimate((), None, _epochs(space), _probes(space), _bounded(space, None), None)


def samples(space: Space) -> Iterator[dict[str, Any]]:
    """Yield the configurations to time: all parameters in the middle of their values, then at each end."""
    seen = []
    for position in POSITIONS:
        config: dict[str, Any] = dict(space.fixed)
        for name, parameter in space.parameters.items():
            if not space.active(name, config):
                continue
            if isinstance(parameter, Choice):
                options = parameter.ordered_values
                config[name] = options[min(int(position * len(options)), len(options) - 1)]
            else:
                config[name] = parameter.value_at(position)
        if config not in seen:
            yield config
        seen.append(config)


def _timed(space: Space, data: Data, clock: Callable[[], float]) -> Iterator[Timed]:
    began = math.inf  # when the first was done: what is loaded for it is loaded once
    for config in samples(space):
        if clock() - began > ENOUGH_SECONDS:
            return
        try:
            yield Timed(config, space.loaded_trainable.estimate(config, data))
        except InfeasibleError as error:
            yield Timed(config, None, str(error))
        except OwnCodeError as error:
            yield Timed(config, None, error=str(error))
        began = min(began, clock())


def _epochs(space: Space) -> Span | None:
    """Return the epochs of all trials. The least: all but one stop at their first rung, if they may."""
    total, trials, (shortest, longest) = space.budget.total_epochs, space.max_trials, space.lengths
    full = None if trials is None else trials * longest
    most = min((n for n in (full, total) if n is not None), default=None)
    if most is None:
        return None
    if trials is None:
        return most, most
    stopped = shortest if space.stopping_rule == "none" else (rungs(shortest) or [shortest])[0]
    return min(most, shortest + (trials - 1) * stopped), most


def _probes(space: Space) -> Span | None:
    """Return the number of probes, from one to every setting that affects probed metrics only."""
    if not space.probe_tuned_parameters or not any(map(space.is_probed, space.objectives)):
        return None
    names = space.affecting("probed")
    affecting = {name: parameter for name, parameter in space.parameters.items() if name in names}
    return 1, space.model_copy(update={"parameters": affecting, "evaluation": "coupled"}).num_configs


def _fitting(space: Space, epoch: Span) -> Span | None:
    """Return the number of trials of full length within the hours, if nothing else limits them."""
    hours = space.budget.hours
    if hours is None or space.max_trials is not None or space.budget.total_epochs is not None:
        return None
    shortest, longest = (
        length * seconds + TRIAL_OVERHEAD_SECONDS for length, seconds in zip(space.lengths, epoch, strict=True)
    )
    together, most = space.concurrent_trials * hours * 3600, space.num_configs
    return min(together // longest, most), min(together // shortest, most)


def _bounded(space: Space, working: Span | None) -> Span | None:
    """Seconds of the whole run; `working`: seconds of all trials in sequence; None if unbounded."""
    limit = math.inf if space.budget.hours is None else space.budget.hours * 3600
    if working is None and math.isinf(limit):
        return None
    overhead = START_SECONDS + (space.max_trials or 0) * TRIAL_OVERHEAD_SECONDS
    repeats = space.num_repeats  # of the front: one point or many
    points = min(KEPT_CHECKPOINTS, space.max_trials or KEPT_CHECKPOINTS)
    ending = _scaled(PROBE_SECONDS, (repeats, repeats * points))  # begins when the hours are spent
    least, most = limit, limit
    if working is not None:
        least, most = _sum((overhead, overhead), _scaled(working, (1 / space.concurrent_trials,) * 2))
    return _sum((min(least, limit), min(most, limit)), ending)


def _scaled(span: Span, factors: Span) -> Span:
    return span[0] * factors[0], span[1] * factors[1]


def _sum(*spans: Span) -> Span:
    return sum(span[0] for span in spans), sum(span[1] for span in spans)
