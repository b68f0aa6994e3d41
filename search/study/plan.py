"""Plan of a run, printed by `--dry-run` before anything starts."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from search.space.machine import Machine, shm_warnings
from search.space.parameters import Choice
from search.space.space import Space
from search.study.deciding import can_decide
from search.study.run_estimate import KEPT_CHECKPOINTS, PROBE_SECONDS, RunEstimate, Span
from search.text.configurations import format_setting, format_settings
from search.text.durations import rough_duration
from search.text.markdown import WIDTH
from search.text.numbers import format_percent, join_words, plural
from search.text.shorten import shorten
from trainables.contract import Resources

INDENT = 13  # columns
BUSY_CORES = 0.2  # used by others: with more, threads that wait for each other become much slower
BUSY = (
    "other processes used {cores:.1f} cores during this timing, so that training may be many times faster without "
    "them: end them, or wait, before the search"
)
FEW_TRIALS = 3  # of full length, with which nothing can be compared


def describe_plan(
    space: Space, data: str, machine: Machine, share: Resources, left_out: Sequence[str], guess: RunEstimate
) -> str:
    """Return the plan as text, at most 80 columns wide where the names allow it."""
    lines = [
        *_entry("trainable", Path(space.trainable or "").name),
        *_entry("data", data),
        *_entry("machine", str(machine) if machine.cpu_name else _stated(machine)),
    ]
    lines += [row for remark in shm_warnings(machine) * bool(machine.cpu_name) for row in _entry("", remark)]
    nodes = f", on {share.nodes} nodes" if share.nodes > 1 else ""
    lines += _entry("per trial", f"{plural(share.cpus, 'core')}, {plural(share.gpus, 'GPU')}{nodes}")
    lines += [row for o in space.objectives for row in _entry("objective", f"{o.metric}, {o.goal}")]
    lines += [row for c in space.constraints for row in _entry("constraint", str(c))]
    settings = [f"{name}={format_setting(value)}" for name, value in space.baseline.items()]
    lines += _entry("baseline", f"{', '.join(settings)}; the first trial") if settings else []
    stopping = space.stopping_rule + " (auto)" * (space.stopping.name == "auto")
    lines += _entry("searcher", f"{space.searcher.name}, seed {space.searcher.seed}; stopping: {stopping}")
    lines += _entry("evaluation", _evaluation(space)) if space.evaluation != "coupled" else []
    lines += _entry("budget", _budget(space))
    lines += ["", "searched", *_settings({name: _choices(p) for name, p in space.parameters.items()})]
    if space.fixed:
        lines += ["", "fixed", *_settings({name: format_setting(value) for name, value in space.fixed.items()})]
    if meanings := space.meanings_of_auto(share):
        lines += ["", "auto here", *_settings(meanings)]
    if left_out:
        lines += ["", "changed or left out here"]
        for line in left_out:
            lines += textwrap.wrap(line, WIDTH, initial_indent="  ", subsequent_indent="    ")
    return "\n".join([*lines, "", *_estimate_lines(space, guess, share)])


def _evaluation(space: Space) -> str:
    """Return what probes are for in a search that is not `coupled`."""
    if space.evaluation == "probe":
        return "probe: nothing is trained"
    tuned = [name for name in space.parameters if name in space.probe_tuned_parameters]
    if tuned and any(map(space.is_probed, space.objectives)):
        return f"decoupled: probes choose {join_words(tuned)}"
    return "decoupled, but there is nothing to probe: it takes an objective and a setting that probes alone tell of"


def _estimate_lines(space: Space, guess: RunEstimate, share: Resources) -> list[str]:
    if not guess.timed and space.evaluation != "probe":
        lines = _entry("epochs", f"{_between(guess.epochs)} in all") if guess.epochs else []
        ends = f"; {_limit(space, guess, share)}" if guess.seconds or space.budget.gpu_hours else ""
        return [*lines, *_entry("time", f"not estimated: nothing was timed on such a machine{ends}")]
    if not guess.timed:
        return _entry("time", f"{_limit(space, guess, share)}: a probe takes up to {PROBE_SECONDS[1]:.0f} s")
    lines = []
    if guess.epochs is not None:
        stopped = ", as trials may be stopped early" if guess.epochs[0] < guess.epochs[1] else ""
        lines += _entry("epochs", f"{_between(guess.epochs)} in all{stopped}")
    if guess.probes is not None:
        each = f"of up to {PROBE_SECONDS[1]:.0f} s each, for settings that affect only rates"
        lines += _entry("probes", f"{_between(guess.probes)}, {each}")
    if not guess.costs:
        why, config = guess.timed[0].why_not or guess.timed[0].error, guess.timed[0].config
        settings = ", ".join(f"{name}={format_setting(value)}" for name, value in config.items())
        return [*lines, *_entry("time", f"not estimated: {why} ({settings})")]
    if guess.trials is not None:
        is_few = guess.trials[0] < FEW_TRIALS and guess.cores_of_others < BUSY_CORES
        few = "; too few to compare: more hours, or fewer epochs or samples" if is_few else ""
        each = f", {_ranging(guess)}" if guess.trials[0] < guess.trials[1] else ""
        lines += _entry("trials", f"{_between(guess.trials)} of full length in {space.budget.hours:g} h{each}{few}")
    lines += _entry("time", _time(space, guess, share))
    lines += [f"{'':<{INDENT}}{line}" for line in _timings(space, guess)]
    if guess.cores_of_others >= BUSY_CORES:
        lines += _entry("warning", BUSY.format(cores=guess.cores_of_others))
    if guess.disk_gib is None:
        return lines
    size = "less than 0.01" if guess.disk_gib < 0.01 else f"about {guess.disk_gib:.2f}"
    disk = f"{size} GiB, for the checkpoints of a front of {KEPT_CHECKPOINTS}"
    return [*lines, *_entry("disk", disk)]


def _time(space: Space, guess: RunEstimate, share: Resources) -> str:
    """Return the range of the run's duration, and its meaning."""
    if guess.seconds is None:
        return _limit(space, guess, share)
    least, most = map(rough_duration, guess.seconds)
    hours = space.budget.hours
    ends = ", with budget.hours spent" if hours and guess.seconds[1] >= hours * 3600 else ""
    ends += " and the front probed again" * bool(ends and space.num_repeats)
    span = most if least == most else f"{least} to {most.removeprefix('about ')}"
    if math.isinf(guess.seconds[1]):
        span = f"{least} or more"
    ranging = f": {_ranging(guess)}" if guess.trials is None or least != most else ""
    deciding = f"turns that decide the front (at most {format_percent(space.budget.deciding)} more)"
    decides = space.budget.deciding and can_decide(space.loaded_trainable)
    apart = f"{deciding} and the test set are" if decides else "the reading of the test set is"
    within = f"Start, validation and all probes are in it, {apart} not."
    return f"{span}{ends}{ranging}. {within}"


def _ranging(guess: RunEstimate) -> str:
    """Return what the two ends of a range stand for."""
    timed = f"{plural(len(guess.costs), 'configuration')} that ran here for a moment, in one process without loading"
    if len(guess.costs) > 1:
        return f"from the fastest and the slowest of {timed}"
    return f"from {timed}; others differ"


def _limit(space: Space, guess: RunEstimate, share: Resources) -> str:
    """Return how long the run takes at most, as far as that is known."""
    if guess.seconds is not None:
        return f"at most {rough_duration(guess.seconds[1])}"
    gpus = share.gpus * space.concurrent_trials
    if space.budget.gpu_hours and gpus:
        busy = f"all {gpus} GPUs are busy" if gpus > 1 else "the GPU is busy"
        least = rough_duration(space.budget.gpu_hours * 3600 / gpus)
        return f"until budget.gpu_hours is spent, {least} if {busy}"
    return "until it is stopped"


def _timings(space: Space, guess: RunEstimate) -> list[str]:
    """Return a line for each timed configuration: its rate, and the settings that distinguish it."""
    configs = [timed.config for timed in guess.timed]
    affecting = space.affecting("probed")
    names = [name for name in space.parameters if name in affecting and len({repr(c.get(name)) for c in configs}) > 1]
    lines = []
    for timed in guess.timed:
        settings = format_settings(timed.config, names or list(space.parameters))
        if timed.error:  # in full: it is to be mended
            lines += textwrap.wrap(f"could not be timed: {settings}: {timed.error}", WIDTH - INDENT)
            continue
        found = f"{timed.cost.units_per_second:>9,.0f} {space.rate_unit}" if timed.cost else f"{'cannot run':>18}"
        why = f": {timed.why_not}" if timed.why_not else ""
        lines.append(f"{found}  {settings}{why}".rstrip())
    return [shorten(line, WIDTH - INDENT) for line in lines]


def _stated(machine: Machine) -> str:
    """Return a machine of which only the GPUs are known."""
    nodes = f"{machine.num_nodes} nodes with " if machine.num_nodes > 1 else ""
    cores = f"{machine.cores} cores{' each' if machine.num_nodes > 1 else ''} assumed"
    gpus = f"{plural(len(machine.gpus), 'GPU')} {machine.gpus[0].name}"
    return f"{nodes}{gpus}; {cores}. What its memory holds is not known here"


def _between(span: Span) -> str:
    """Return e.g. `8`, `8 to 16` or `1 or more`."""
    least, most = span
    if math.isinf(most):
        return f"{least:,.0f} or more"
    return f"{most:,.0f}" if least == most else f"{least:,.0f} to {most:,.0f}"


def _entry(name: str, text: str) -> list[str]:
    return _wrapped(text, f"{name:<{INDENT}}", INDENT)


def _settings(texts: Mapping[str, str]) -> list[str]:
    return [row for name, text in texts.items() for row in _wrapped(text, f"  {name:<15} ", 18)]


def _wrapped(text: str, head: str, indent: int) -> list[str]:
    rows = textwrap.wrap(
        text,
        WIDTH,
        initial_indent=head,
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
    return rows or [head.rstrip()]


def _budget(space: Space) -> str:
    budget = space.budget
    parts = [
        budget.trials and plural(budget.trials, "trial"),
        budget.total_epochs and f"{plural(budget.total_epochs, 'epoch')} in all",
        budget.hours and f"{budget.hours:g} h",
        budget.gpu_hours and f"{budget.gpu_hours:g} GPU hours",
    ]
    least, most = space.lengths
    length = plural(1, "probe") if space.evaluation == "probe" else plural(most, "epoch")
    length = length if least == most else f"{least} to {length}"
    points = f"all {plural(space.max_trials, 'grid point')}" if space.max_trials else ""
    enough = budget.least_gain and f"; ends when the next trial promises a gain below {budget.least_gain:.1%}"
    return f"{length} a trial; {' or '.join(p for p in parts if p) or points}{enough or ''}"


def _choices(parameter: Any) -> str:
    if isinstance(parameter, Choice):
        text = ", ".join(format_setting(value) for value in parameter.values)
    else:
        text = f"{parameter.min:g} to {parameter.max:g}" + (", log" if parameter.log else "")
    if parameter.likely:
        is_list = isinstance(parameter, Choice)
        words = [format_setting(value) for value in parameter.likely]
        text += f"; likely {join_words(words) if is_list else ' to '.join(words)}"
    when = " and ".join(
        f"{name} is {' or '.join(map(format_setting, wanted))}" for name, wanted in parameter.when.items()
    )
    return f"{text}  (when {when})" if when else text
