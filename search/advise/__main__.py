"""Measure which single change of a setting makes a configuration faster on this machine.

    python -m search.advise RUN [--trial t0007] [--minutes 2] [NAME=VALUE ...]
    python -m search.advise --trainable vgg19_cifar10 [--data folder --root DIR] batch_size=128 ...

Tries the neighbours of a trial of a run (by default its knee), or of a configuration alone: the next batch sizes,
loader processes, precision, memory format, strategy, threads and so on. NAME=VALUE changes a setting beforehand. All
take turns of half a second beside each other; the promising ones are then measured again. --json prints JSON.

Exit codes: 0 done, 2 bad input or a configuration that cannot run here, 130 interrupted.
"""

from __future__ import annotations

import argparse
import math
import shlex
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from search.advise.answer import as_json, as_text
from search.advise.comparison import MOST_AT_A_TIME, Comparisons
from search.commandline import command_parser, find_trial, given_settings, load_run, print_output
from search.exit_codes import BAD_INPUT, DONE, INTERRUPTED, InputError, Parser
from search.front.intervals import relative_deviation
from search.front.neighbour import Neighbour
from search.front.roles import rate_metric
from search.front.settings_to_try import neighbours
from search.record.dataframes import Run
from search.record.defaults import changed_defaults
from search.record.trial import Trial
from search.report.picks import no_front
from search.space.machine import describe_machine
from search.text.configurations import assignments
from search.text.markdown import wrap
from search.text.numbers import plural
from search.train.arguments import same_data
from search.train.child_process import TrainingError, last_metrics
from search.train.facts import facts_of
from search.train.turn_group import TurnError
from trainables.contract import DataError, InfeasibleError, Resources, Scalar, Trainable, Verdict, load_trainable

NAME = "search.advise"
MOST_ALONE = 3  # loops of a user's own, each with processes of its own
MAX_MEMORY = 0.85  # of what there is, for all configurations that take turns


@dataclass(frozen=True)
class Job:
    """A configuration whose neighbours are tried."""

    trainable: Trainable
    config: Mapping[str, Any]  # all parameters
    arguments: list[str]  # of `python -m trainables.train`: training file and data
    title: str
    command: list[str]  # that asks the same again, without the settings that were `given`
    given: Mapping[str, Scalar | None]
    searched: Mapping[str, Sequence[Scalar]]  # values that the run's space lists
    verdict: Verdict | None = None  # None: not known before a probe
    metrics: Mapping[str, float] | None = None  # of it

    @property
    def assignments(self) -> list[str]:
        """The configuration as NAME=VALUE; a setting without a value is left out."""
        return assignments({name: value for name, value in self.config.items() if value is not None})


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the answer and return the exit code."""
    try:
        options = _parser().parse_intermixed_args(arguments)
        if not 0 < options.minutes < math.inf:
            raise InputError(f"--minutes {options.minutes:g}: expected a number above 0")
        job = _of_run(options) if options.trainable is None else _of_configuration(options)
        return _advise(job, options)
    except (InputError, DataError, InfeasibleError, TurnError, TrainingError, LookupError) as error:
        print(f"{NAME}: {error}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print(f"{NAME}: interrupted", file=sys.stderr)
        return INTERRUPTED


def _parser() -> Parser:
    parser = command_parser(NAME, __doc__, at_end=2)
    parser.add_argument("words", nargs="*", metavar="RUN or NAME=VALUE", help="folder of a run; settings to change")
    parser.add_argument("--trial", metavar="ID", help="of the run; default: the knee of its front")
    more = "starting the trainings and the fewest rounds may take a minute more"
    parser.add_argument("--minutes", type=float, default=2.0, help=f"time to measure (default: 2); {more}")
    parser.add_argument("--trainable", help="without a run: vgg19_cifar10, image_folder or a file such as flowers.py")
    parser.add_argument("--data", default="auto", help="without a run: auto, cifar10, folder or generated")
    parser.add_argument("--root", help="folder of the data; default: that of the run")
    parser.add_argument("--only", metavar="NAME,...", help="settings to change; default: all that may help")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _of_run(options: argparse.Namespace) -> Job:
    folders = [word for word in options.words if "=" not in word]
    if len(folders) != 1:
        raise InputError("expected the folder of one run, or --trainable (see --help)")
    folder = Path(folders[0])
    run = load_run(folder)
    trial = _trial(run, options.trial)
    arguments = same_data(run, folder, options.root)
    trainable = load_trainable(arguments[1])
    changes = [word for word in options.words if "=" in word]  # of settings
    given = given_settings(changes, trainable, arguments[1])
    config = _whole(trainable, {**changed_defaults(run.info), **trial.config, **given})
    elsewhere = bool(run.info.machine.difference(describe_machine()))
    root = ["--root", shlex.quote(options.root)] if options.root else []
    same = [f"python -m {NAME} {shlex.quote(f'{folder}')}", f"--trial {trial.trial_id}", *root]
    return Job(
        trainable,
        config,
        arguments,
        " with ".join([f"{trial.trial_id} of {run.name}", *([" ".join(changes)] if changes else [])]),
        same,
        given,
        {name: stated["values"] for name, stated in run.info.parameters.items() if "values" in stated},
        None if changes or elsewhere else trial.verdict,
        None if changes or elsewhere else trial.own_metrics,
    )


def _trial(run: Run, trial_id: str | None) -> Trial:
    if trial_id is not None:
        return find_trial(run, trial_id)
    if (knee := run.state.knee) is None:
        raise InputError(f"{run.folder}: {no_front(run)}; --trial ID names a trial")
    return knee


def _of_configuration(options: argparse.Namespace) -> Job:
    if options.trial is not None:
        raise InputError("--trial: belongs to a run")
    path = Path(options.trainable)
    name = str(path.absolute()) if path.suffix == ".py" else options.trainable
    trainable = load_trainable(name)
    given = given_settings(options.words, trainable, options.trainable)
    config = _whole(trainable, given)
    data = ["--data", options.data, *(["--root", options.root] if options.root else [])]
    words = ["--trainable", shlex.quote(options.trainable), *map(shlex.quote, data)]
    pairs = [" ".join(words[i : i + 2]) for i in range(0, len(words), 2)]
    command = [f"python -m {NAME}", *pairs]
    title = " with ".join([options.trainable, *([" ".join(options.words)] if given else [])])
    return Job(trainable, config, ["--trainable", name, *data], title, command, given, searched={})


def _whole(trainable: Trainable, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with all parameters.

    Raises:
        InputError: the training has none that could be changed.
    """
    known = trainable.PARAMETERS or {}
    if not known:
        raise InputError("recorded trainings have no rates that could be measured")
    return {**{name: row.default for name, row in known.items()}, **config}


def _ruled_out(job: Job) -> Collection[str]:
    """Return settings that cannot matter to a user's network or that it cannot be trained with; takes some seconds."""
    if not (hasattr(job.trainable, "own_names") and job.trainable.STRATEGIES):
        return ()
    _tell("builds the network")
    options = dict(zip(job.arguments[::2], job.arguments[1::2], strict=True))
    found = facts_of(Path(options["--trainable"]), options.get("--root"), "--ruled-out", *job.assignments)
    ruled_out: Collection[str] = found.get("ruled_out", ())  # an error of the file is told where it is trained
    return ruled_out


def _changes(
    job: Job,
    only: str | None,
    resources: Resources,
    verdict: Verdict | None = None,
    ruled_out: Collection[str] = (),
) -> list[Neighbour]:
    """Return the changes to try, in order.

    Raises:
        InputError: there are none, or one of `only` is not among them.
    """
    bound_by = verdict.bound_by if verdict else None
    found = neighbours(job.trainable, job.config, resources, job.searched, bound_by, ruled_out)
    if not found:
        raise InputError(f"{job.title}: no setting can be changed")
    possible = list(dict.fromkeys(change.parameter for change in found))
    wanted = possible if only is None else only.split(",")
    for name in wanted:
        if name not in possible:
            raise InputError(f"--only {name}: cannot be changed here; there are {', '.join(possible)}")
    return [change for change in found if change.parameter in wanted]


def _advise(job: Job, options: argparse.Namespace) -> int:
    machine, minutes, in_json = describe_machine(), options.minutes, options.json
    layout = job.trainable.layout(job.config, machine.resources)
    arguments = [*job.arguments, *job.assignments]
    _changes(job, options.only, machine.resources)  # before anything runs
    ruled_out = _ruled_out(job)
    verdict, metrics = job.verdict, job.metrics
    if verdict is None or metrics is None or "peak_memory_fraction" not in metrics:
        _tell("probes the configuration")
        metrics = last_metrics([*arguments, "--probe"])
        verdict = job.trainable.explain(job.config, metrics, machine.resources)
    fraction = metrics.get("peak_memory_fraction")
    changes = _changes(job, options.only, machine.resources, verdict, ruled_out)
    together = hasattr(job.trainable, "turns")
    fitting = int(MAX_MEMORY / fraction) - 1 if fraction else MOST_AT_A_TIME
    most = fitting if together else min(fitting, MOST_ALONE)
    if most < 1:
        raise InputError(f"{job.title}: two such trainings do not fit into memory together, so they cannot take turns")
    if not in_json:
        text = f"{job.title}, on {machine}; {plural(len(changes), 'change')} to try in {minutes:g} min"
        print_output(wrap(". ".join([text, *([verdict.why] if verdict else [])])))
    comparisons = Comparisons(
        arguments,
        layout,
        60 * minutes,
        rate_deviation=relative_deviation(metrics, rate_metric(metrics)),
        step_seconds=metrics.get("step_seconds", 0.0),
        together=together,
        most_at_a_time=most,
        told=_tell,
    )
    tried = comparisons.run(changes)
    _tell("")
    text = as_json(tried, comparisons.rate) if in_json else f"\n{as_text(tried, job.command, job.given)}"
    print_output(text)
    return DONE


def _tell(text: str) -> None:
    """Show what goes on in one line of a terminal."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
