"""Train one configuration of a run in full, without search and without Ray.

    python -m search.train RUN --trial t0020 --epochs 200

Results are in RUN/trained/t0020: curves.csv with one row per epoch, the checkpoint, and at the end result.csv and
summary.md. After an interruption or a kill the same command continues from the checkpoint. A finished training is never
overwritten.
Exit codes: 0 done, 1 failed, 2 bad input or cannot run here, 129, 130 and 143 interrupted.
"""

from __future__ import annotations

import contextlib
import json
import math
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from search.commandline import find_trial, load_run, replace_unknown_characters, run_parser
from search.exit_codes import BAD_INPUT, DONE, FAILED, InputError, Parser
from search.front.roles import metric_label
from search.record.dataframes import Run
from search.record.disk import check_writable, describe_os_error
from search.record.trial import Trial
from search.report.command import full_epochs, settings
from search.space.machine import describe_machine, git_commit, package_versions
from search.study.interrupt import Interrupted, Interrupts
from search.text.markdown import wrap
from search.text.numbers import join_words
from search.text.shell import continued
from search.text.unbreakable import Unbreakable, unbreakable_errors
from search.train.arguments import data_arguments
from search.train.child_process import CURVES, Reports, read_curves, train
from search.train.progress import Progress
from search.train.result import (
    MOST_EVALUATIONS,
    RESULT,
    SUMMARY,
    Training,
    comparison,
    finished,
    headline,
    write_result,
)

NAME = "search.train"
LOCK = "training.lock"  # held by `trainables.train` in its folder


@dataclass(frozen=True)
class Job:
    """A full training with all input checked, before its start."""

    run: Run
    trial: Trial
    folder: Path
    epochs: int
    arguments: list[str]  # of `python -m trainables.train`
    command: str  # that starts or continues this training


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    replace_unknown_characters()
    with unbreakable_errors(), Interrupts() as interrupts:
        try:
            return _train(_job(words), interrupts)
        except (InputError, OSError, ValueError) as error:
            print(f"{NAME}: {error}", file=sys.stderr)
            return BAD_INPUT if isinstance(error, InputError) else FAILED
        except Interrupted as interrupted:
            return interrupted.exit_code  # before the training started


def _job(words: Sequence[str]) -> Job:
    """Return the training that the command line asks for, after all checks of its input."""
    options = _parser().parse_args(words)
    run = load_run(options.run)
    trial = find_trial(run, options.trial)
    epochs: int = full_epochs(run.info, trial) if options.epochs is None else options.epochs
    every = math.ceil(epochs / MOST_EVALUATIONS) if options.evaluate_every is None else options.evaluate_every
    counts = {"--epochs": epochs, "--evaluate-every": every, "--train-samples": options.train_samples}
    for option, count in counts.items():
        if count is not None and count < 1:
            raise InputError(f"{option} {count}: at least one is needed")
    if options.val_samples is not None and options.val_samples < 0:
        raise InputError(f"--val-samples {options.val_samples}: expected 0 or more")
    if options.val_samples == 0 and run.info.source:
        name = Path(run.info.trainable).name
        raise InputError(f"--val-samples 0: {name} says itself what is trained on; leave the option out")
    folder: Path = options.folder or options.run / "trained" / trial.trial_id
    _check_folder(folder, epochs)
    if options.root is not None and run.info.data.name == "generated":
        raise InputError("--root: the run's data is generated, from no folder; leave it out")
    arguments = data_arguments(run, options.run, options.root, options.train_samples, options.val_samples)
    arguments += ["--epochs", f"{epochs}", "--evaluate-every", f"{every}", "--folder", f"{folder}", "--test"]
    arguments += settings(run, trial)
    return Job(run, trial, folder, epochs, arguments, shlex.join(["python", "-m", NAME, *words]))


def _parser() -> Parser:
    parser = run_parser(NAME, __doc__)
    parser.add_argument("--trial", required=True, metavar="ID", help="from the summary or from `python -m search.pick`")
    parser.add_argument("--epochs", type=int, help="default: the usual ones (VGG19: 200), or as in the search")
    parser.add_argument("--root", help="folder of the data; default: as in the search")
    parser.add_argument("--train-samples", "--train-images", type=int, help="number of training samples; default: all")
    parser.add_argument(
        "--val-samples",
        "--val-images",
        type=int,
        help="number of validation samples; default: as in the search; 0, not for own files: trains on all pictures",
    )
    parser.add_argument(
        "--evaluate-every",
        type=int,
        metavar="EPOCHS",
        help=f"epochs between two evaluations; default: so that there are at most {MOST_EVALUATIONS}",
    )
    parser.add_argument("--folder", type=Path, help="folder of the results; default: RUN/trained/ID")
    return parser


def _check_folder(folder: Path, epochs: int) -> None:
    """Check that a training of so many epochs can begin or go on in the folder.

    Raises:
        InputError: it cannot.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--folder {folder}: is no folder")
    try:
        check_writable(folder)
    except OSError as error:
        raise _cannot_be_made(folder, error) from error
    config = folder / "config.json"
    try:
        started = json.loads(config.read_text()).get("epochs", epochs) if config.exists() else epochs
        result = finished(folder)
        read_curves(folder)
    except (ValueError, LookupError, AttributeError) as error:
        raise InputError(f"{folder}: has files that are not of a training; --folder DIR names another one") from error
    if result:
        other = f"--folder {shlex.quote(f'{folder}-{epochs}-epochs')} trains it from the start"
        schedule = f" its schedule ended with epoch {started}, so that it cannot go on to {epochs};"
        why = schedule if started != epochs else ""
        raise InputError(f"{folder}: trained already ({result});{why} {other}")
    if started != epochs:  # the learning-rate schedule depends on the number of epochs
        raise InputError(
            f"{folder}: started with {started} epochs, not {epochs}; --epochs {started} continues it, "
            "--folder DIR starts another training"
        )


def _cannot_be_made(folder: Path, error: OSError) -> InputError:
    return InputError(f"--folder {folder}: cannot be made: {describe_os_error(error)}")


def _train(job: Job, interrupts: Interrupts) -> int:
    interrupts.exit_message = f"\ninterrupted twice; to continue:\n  {job.command}\n"
    existed, data = job.folder.exists(), job.run.info.data.name
    try:
        job.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_be_made(job.folder, error) from error
    names = dict.fromkeys([*(o.metric for o in job.run.state.objectives), job.run.state.rate_metric])
    labels = {name: metric_label(name, data) for name in names}
    progress = Progress(job.epochs, labels, job.run.info.metrics)
    reports = Reports(
        on_epoch=progress.update,
        on_data=lambda description: progress.announce(wrap(f"data: {description}")),
        on_other=lambda line: print(line, file=sys.stderr),
        on_step=progress.update_step,
    )
    progress.announce(wrap(f"{job.trial.trial_id} of {job.run.name}: {' '.join(settings(job.run, job.trial))}"))
    if epochs := read_curves(job.folder):
        progress.announce(f"{epochs[-1].number} of {job.epochs} epochs are trained; continues from the last checkpoint")
    searched = job.run.info.data_settings.get("train_images")
    if searched is not None and "--train-samples" not in job.arguments:
        text = f"on all samples; the search used {searched:,} of them (--train-samples {searched} uses the same number)"
        progress.announce(wrap(text))
    try:
        with progress:
            code = train(job.arguments, reports)
    except Interrupted as interrupted:
        interrupts.ignore()
        _print_continuation("interrupted", progress, job)
        return interrupted.exit_code
    interrupts.ignore()  # the rest takes about a second
    if code == DONE:
        _conclude(job, reports)
        return DONE
    for reason in reports.errors or [f"python -m trainables.train ended with exit code {code}"]:
        print(f"{NAME}: {reason}", file=sys.stderr)
    if code == BAD_INPUT:  # the configuration cannot run here
        if not existed:
            _remove_what_never_began(job.folder)
        return BAD_INPUT
    _print_continuation("failed", progress, job)
    return FAILED


def _remove_what_never_began(folder: Path) -> None:
    """Remove the folder of a training without epochs, unless another process that came at the same time trains there.

    The folder above it goes too if it is the empty one of all full trainings.
    """
    from filelock import FileLock, Timeout

    with contextlib.suppress(Timeout), FileLock(folder / LOCK).acquire(timeout=0):
        if not (folder / CURVES).exists():
            shutil.rmtree(folder, ignore_errors=True)
            if folder.parent.name == "trained" and not any(folder.parent.iterdir()):
                folder.parent.rmdir()


def _conclude(job: Job, reports: Reports) -> None:
    """Write the result and print it beside the measurement of the search."""
    epochs = read_curves(job.folder)
    if not epochs:
        raise ValueError(f"{job.folder}: {CURVES} has no epoch")
    training = Training(job.run, job.trial, job.folder, epochs, reports.test_metrics)
    conditions = {
        "Configuration": ", ".join(settings(job.run, job.trial)),
        "Data": reports.data,
        "Machine": str(describe_machine()),
        "Ended": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "Commit": git_commit(Path(__file__).parent),
        "Versions": ", ".join(f"{name} {version}" for name, version in package_versions().items()),
    }
    write_result(training, conditions, continued(list(map(shlex.quote, shlex.split(job.command)))))
    names = [SUMMARY, RESULT, CURVES, *(["the checkpoint"] if any(job.folder.glob("checkpoint*")) else [])]
    files = wrap(f"{job.folder}: {join_words(names)}", "  ")
    print(f"{headline(training)}\n\n{comparison(training)}\n\n{files}", file=Unbreakable(sys.stdout), flush=True)


def _print_continuation(outcome: str, progress: Progress, job: Job) -> None:
    text = f"{outcome} after epoch {progress.last_epoch} of {job.epochs}; to continue:\n  {job.command}"
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
