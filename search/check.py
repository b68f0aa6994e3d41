"""Check a training file before a search: what it declares, whether it trains alike in all ways, rate and memory.

    python -m search.check flowers.py [--root DIR] [batch_size=64 ...]

Trains 8 steps in one process, again with the same seed, with loader processes and with each strategy, and compares the
losses; then measures rate and memory for some seconds. A loop is run to its first report, then measured. Takes one to
two minutes for a small network, and leaves nothing of its own behind. Prints each finding as soon as it is known, at
last a space file to start from.

Exit codes: 0 done, 1 something failed, 2 bad input, 130 interrupted.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from search.commandline import command_parser, given_settings, replace_unknown_characters
from search.exit_codes import BAD_INPUT, DONE, FAILED, INTERRUPTED, InputError
from search.front.roles import is_interval_end, rate_metric, rate_unit
from search.space.machine import describe_machine
from search.space.starting_space import starting_space
from search.study.run_estimate import PROBE_SECONDS
from search.text.markdown import wrap
from search.text.metrics import CONTENDED
from search.text.numbers import plus_minus
from search.text.reasons import without_rank
from search.train.child_process import TrainingError, last_metrics
from search.train.facts import facts_of
from trainables.contract import Data, DataError, Metric, Resources, Source, Trainable, load_trainable, source_of

STEPS = 8  # of each training that is compared
BATCH_SIZE = 32
FIRST_REPORT_SECONDS = 60.0  # of a loop, which may validate for long
TOLERANCE = 1e-4  # relative, between strategies, which add in another order
FAR_APART = 0.05  # relative, of the loss in 16 bits and in fp32
WIDTH = 18  # columns of the left side


@dataclass(frozen=True)
class Check:
    """A file, the data folder, and settings that all trainings of the check share."""

    path: Path
    root: str | None
    settings: Mapping[str, str]
    workload: bool = True  # False: a loop
    figures: dict[str, float] = field(default_factory=dict)  # units of an epoch and their rate, once they are known

    @property
    def batch_size(self) -> int:
        """Samples per step."""
        size = self.settings.get("batch_size", "")
        return int(size) if size.isdecimal() else BATCH_SIZE  # a loop may have other values

    @property
    def epoch_is_long(self) -> bool:
        """True if an epoch takes longer than a probe, so that probes may save time."""
        found = self.figures
        return "rate" in found and found.get("units", 0.0) > PROBE_SECONDS[1] * found["rate"]


@dataclass(frozen=True)
class Outcome:
    """Metrics of a training or a probe, or why there are none."""

    metrics: Mapping[str, float]
    error: str | None = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the findings line by line and return the exit code."""
    replace_unknown_characters()
    try:
        try:
            check, trainable = _check(arguments)
            source = source_of(str(check.path))
        except (InputError, LookupError, DataError) as error:
            print(f"search.check: {error}", file=sys.stderr)
            return BAD_INPUT
        assert source is not None
        failed = _tell(check, trainable, source)
    except KeyboardInterrupt:
        print("search.check: interrupted", file=sys.stderr)
        return INTERRUPTED
    if failed:
        return FAILED
    name, same = source.path.name, (check.root, check.batch_size, check.settings)
    print(f"\n{starting_space(trainable, name, *same, decoupled=check.epoch_is_long)}", end="")
    return DONE


def _tell(check: Check, trainable: Trainable, source: Source) -> bool:
    """Print the findings; return whether one of them is a failure."""
    failed = False
    console = Console(soft_wrap=True, highlight=False, markup=False)
    with console.status("trains a few steps at a time, then measures"):  # on a terminal alone
        for name, text, good in findings(check, trainable, source):
            failed |= not good
            console.print(wrap(f"{name:<{WIDTH}}{text}", " " * WIDTH))
    return failed


def _check(arguments: Sequence[str] | None) -> tuple[Check, Trainable]:
    parser = command_parser("search.check", __doc__, at_end=2)
    parser.add_argument("file", type=Path, help="the training file")
    parser.add_argument("settings", nargs="*", default=[], metavar="NAME=VALUE", help="parameters for all parts")
    parser.add_argument("--root", help="data folder; `data.root` of a space file")
    options = parser.parse_intermixed_args(arguments)
    if options.file.suffix != ".py":
        raise InputError(f"{options.file}: expected a Python file, as in python -m search.check flowers.py")
    path = options.file.absolute()
    trainable = load_trainable(str(path))
    given_settings(options.settings, trainable, f"{options.file}")
    if options.root is not None:
        trainable.locate_data(Data(root=options.root))
    settings = {name: value for name, _, value in (word.partition("=") for word in options.settings)}
    return Check(path, options.root, settings, workload=bool(trainable.STRATEGIES)), trainable


def findings(check: Check, trainable: Trainable, source: Source) -> Iterator[tuple[str, str, bool]]:
    """Yield name and text of each finding, and whether it is as it should be; ends at the first error of the file."""
    known, resources = trainable.METRICS or {}, describe_machine().resources
    yield "file", f"{source.path.name} (sha256 {source.digest})", True
    own = {name: metric for name, metric in known.items() if metric.role is not None}
    yield "metrics", ", ".join(_metric(name, metric) for name, metric in own.items()), True
    if not check.workload:
        yield "loop", "train(config, trial): samples, network and strategy are its own", True
        text, good = _first_report(check, own)
        yield "first report", text, good
        if not good:
            return
        yield from _measured(check, rate_metric(known), {"rate": {}})
        return
    facts = _facts(check, *_settings(check))
    if "error" in facts:
        yield "error", str(facts["error"]), False
        return
    check.figures["units"] = facts["samples"] * facts["units"]
    yield from _described(facts, known)
    single = _trained(check)
    if single.error:
        yield "single", single.error, False
        return
    yield f"{STEPS} steps of {check.batch_size}", _values(single), True
    yield from _compared(check, trainable, resources, single)
    yield from _in_auto_precision(check, trainable, resources, single)
    settings = {"rate": {"num_workers": "0"}, "1 loader": {"num_workers": "1"}}
    yield from _measured(check, rate_metric(known), settings, facts["memory_error"])


def _described(facts: Mapping[str, object], known: Mapping[str, object]) -> Iterator[tuple[str, str, bool]]:
    yield "samples", f"{facts['samples']:,} for training", True
    yield "one sample", f"input {_shape(facts['input'])}, target {_shape(facts['target'])}", True
    unit = rate_unit(rate_metric(known)).removesuffix("/s")
    if facts["units"] != 1:
        yield "", f"{facts['units']:,g} {unit}", True
    uncounted = f"FLOPs cannot be counted: {facts['flops_error']}"
    flops = uncounted if facts["flops"] is None else f"{facts['flops']:,} FLOPs per sample and step"
    yield "network", f"{facts['parameters']:,} parameters; {flops}", True


def _compared(
    check: Check, trainable: Trainable, resources: Resources, single: Outcome
) -> Iterator[tuple[str, str, bool]]:
    """Compare the losses of other ways to train with those of a single process."""
    trainings = {  # each runs when the line before it is out
        "again": ("the same seed in another process", partial(_trained_twice, check)),
        "2 loaders": ("loader processes", partial(_trained, check, num_workers="2")),
    }
    for name, (meaning, training) in trainings.items():
        other = training()
        equal = not other.error and _difference(single, other) == 0
        verdict = f"equal with {meaning}" if equal else f"differs with {meaning}: {_values(other)}"
        if name == "again" and not equal:
            verdict += "; the file keeps something from one training to the next, or draws numbers without its seed"
        yield name, other.error or verdict, equal
    for strategy in trainable.STRATEGIES:
        if strategy == "single" or trainable.unavailable("strategy", strategy, resources):
            continue
        other = _trained(check, strategy=strategy)
        if other.error:  # not every network can be trained in every way
            yield strategy, f"not possible: {without_rank(other.error)}", True
            continue
        near = _difference(single, other) <= TOLERANCE
        causes = "batch normalisation, dropout, or a loss that is not the mean over samples can be the cause"
        differs = f"differs: {_values(other)}; {causes}"
        yield strategy, "equal up to rounding" if near else differs, True


def _in_auto_precision(
    check: Check, trainable: Trainable, resources: Resources, single: Outcome
) -> Iterator[tuple[str, str, bool]]:
    """Train in the precision that searches have by default, as the comparisons before are in fp32."""
    meanings = getattr(trainable, "meanings_of_auto", None)
    if meanings is None or "precision" in check.settings:
        return
    meaning = meanings(resources)["precision"]
    if meaning == "fp32":
        yield "precision auto", "fp32 here", True
        return
    other = _trained(check, precision="auto")
    if other.error:
        yield "precision auto", f"{meaning} here: {other.error}; precision=fp32 avoids it", False
        return
    one, two = (outcome.metrics["train_loss"] for outcome in (single, other))
    apart = abs(one - two) / max(abs(one), abs(two), 1e-12)
    far = "" if apart <= FAR_APART else ": far; compare both in the search"
    yield "precision auto", f"{meaning} here: train_loss {two:.6g}, {apart:.1%} from fp32{far}", True


def _measured(
    check: Check, rate: str, settings: Mapping[str, Mapping[str, str]], memory_error: str | None = None
) -> Iterator[tuple[str, str, bool]]:
    """Measure rate and memory by a probe for each of the settings; `memory_error`: why memory is not predicted."""
    for name, changed in settings.items():
        probed = _trained(check, probe=True, **changed)
        metrics = probed.metrics
        check.figures["rate"] = max(metrics.get(rate, 0.0), check.figures.get("rate", 0.0))
        half = (metrics.get(f"{rate}_high", math.nan) - metrics.get(f"{rate}_low", math.nan)) / 2
        value = f"{plus_minus(metrics[rate], half)} {rate_unit(rate)}" if rate in metrics else "too few steps"
        contended = f"; {CONTENDED}" if metrics.get("contended") else ""
        yield name, probed.error or f"{value}{contended}", probed.error is None
        if name == "rate" and "peak_memory_gib" in metrics:
            predicted = metrics.get("predicted_memory_gib")
            missing = ": ".join(filter(None, ["not predicted", memory_error]))
            text = missing if predicted is None else f"{predicted:.2f} predicted"
            peak = metrics.get("peak_reserved_gib", metrics["peak_memory_gib"])
            yield "memory", f"{peak:.2f} GiB, {text}", True


def _first_report(check: Check, metrics: Collection[str]) -> tuple[str, bool]:
    """Return what a loop reports after a few steps, or why that was not checked; and whether it is as declared."""
    if check.settings.get("world_size", "1") != "1":
        return "not checked: only loops of one process are", True
    found = _facts(check, "--first-report", f"{STEPS}", *_settings(check), seconds=FIRST_REPORT_SECONDS)
    if not found:
        return f"not checked: no trial.report within {FIRST_REPORT_SECONDS:.0f} s", True
    if "error" in found:
        return str(found["error"]), False
    return ", ".join(f"{name} {found[name]:.6g}" for name in metrics), True


def _facts(check: Check, *arguments: str, seconds: float | None = None) -> Mapping[str, Any]:
    return facts_of(check.path, check.root, *arguments, seconds=seconds)


def _trained_twice(check: Check) -> Outcome:
    """Train some steps in a process that has trained with another seed before."""
    found = _facts(check, "--twice", *_limits(check), *_settings(check))
    return Outcome({}, str(found["error"])) if "error" in found else Outcome(found)


def _settings(check: Check, **changed: str) -> list[str]:
    common = {"precision": "fp32", "batch_size": str(check.batch_size)} if check.workload else {}
    return [f"{name}={value}" for name, value in {**common, **check.settings, **changed}.items()]


def _limits(check: Check) -> list[str]:
    return ["--train-samples", str(STEPS * check.batch_size), "--val-samples", str(check.batch_size)]


def _trained(check: Check, probe: bool = False, **changed: str) -> Outcome:
    """Train some steps with equal seeds, or probe."""
    arguments = ["--trainable", str(check.path), *(["--probe"] if probe else _limits(check))]
    arguments += ["--root", check.root] if check.root else []
    try:
        return Outcome(last_metrics([*arguments, *_settings(check, **changed)]))
    except TrainingError as error:
        return Outcome({}, str(error))


def _learned(outcome: Outcome) -> dict[str, float]:
    found = {name: value for name, value in outcome.metrics.items() if name.startswith(("train_loss", "val_"))}
    return {name: value for name, value in found.items() if not is_interval_end(name, found)}


def _difference(a: Outcome, b: Outcome) -> float:
    """Return the largest relative difference of what two trainings learned; infinite where one learned no number."""
    pairs = [(value, _learned(b).get(name, math.nan)) for name, value in _learned(a).items()]
    apart = [abs(x - y) / max(abs(x), abs(y), 1e-12) for x, y in pairs]
    return math.inf if any(map(math.isnan, apart)) else max(apart)


def _values(outcome: Outcome) -> str:
    return ", ".join(f"{name} {value:.6g}" for name, value in _learned(outcome).items())


def _metric(name: str, metric: Metric) -> str:
    """Return a metric's name, unit and goal, and whether the goal is a guess."""
    better = "lower" if metric.role == "loss" else "higher"
    guess = ", as its name suggests" if metric.role_is_guess else ""
    unit = "" if metric.unit == "1" else metric.unit
    return f"{name} ({', '.join(filter(None, [unit, f'{better} is better']))}{guess})"


def _shape(described: object) -> str:
    if isinstance(described, dict):
        return "{" + ", ".join(f"{name}: {_shape(value)}" for name, value in described.items()) + "}"
    return "(" + ", ".join(map(_shape, described)) + ")" if isinstance(described, list) else f"{described}"


if __name__ == "__main__":
    sys.exit(main())
