"""Train one configuration of a run in full, without search and without Ray.

    python -m search.train RUN --trial t0020 --epochs 200

RUN/trained/t0020 takes a row an epoch (curves.csv), the checkpoint, and at the end result.csv and summary.md. Run again
after an interruption or a kill, the same command goes on behind the last epoch; what is finished is never overwritten.
Exit codes: 0 done, 1 failed, 2 bad input or cannot run here, 130 and 143 interrupted.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from search.commandline import opened, say, trial_of
from search.outcome import BAD_INPUT, DONE, FAILED, InputError, Parser
from search.record.history import Trial
from search.report.command import FULL_EPOCHS, settings
from search.results import Run
from search.space.machine import describe_machine, git_commit, versions
from search.study.interrupt import Interrupted, Interrupts
from search.text.markdown import wrapped
from search.text.wording import metric_label
from search.train.epochs_left import EpochsLeft
from search.train.full_training import CURVES, Heard, read_curves, train
from search.train.trained import RESULT, SUMMARY, beside_search, finished, headline, read_trained, write_trained

NAME = "search.train"


@dataclass(frozen=True)
class Job:
    """A full training that is about to begin or to go on: everything checked, nothing started."""

    run: Run
    trial: Trial
    folder: Path
    epochs: int
    words: list[str]  # for `python -m trainables.train`
    again: str  # the command that goes on with it


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with Interrupts() as interrupts:
            return _trained(_job(_parser().parse_args(words), words), interrupts)
    except InputError as error:
        print(f"{NAME}: {error}", file=sys.stderr)
        return BAD_INPUT
    except (OSError, ValueError) as error:
        print(f"{NAME}: {error}", file=sys.stderr)
        return FAILED
    except Interrupted as interrupted:
        return interrupted.exit_code  # before anything was begun


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog=f"python -m {NAME}", description=(__doc__ or "").split("\n")[0], allow_abbrev=False)
    parser.add_argument("run", type=Path, metavar="RUN", help="a run's folder, finished or not")
    parser.add_argument("--trial", required=True, metavar="ID", help="as in the summary, or of `python -m search.pick`")
    parser.add_argument("--epochs", type=int, default=FULL_EPOCHS, help="default: %(default)s")
    parser.add_argument("--root", help="where the pictures are, if not where the search would look for them")
    parser.add_argument("--train-images", type=int, help="train on so many pictures only; default: all")
    parser.add_argument("--folder", type=Path, help="default: RUN/trained/ID")
    return parser


# --- what is asked for ------------------------------------------------------------------------------------------------


def _job(options: argparse.Namespace, words: Sequence[str]) -> Job:
    run = opened(options.run)
    trial = trial_of(run, options.trial)
    if options.epochs < 1:
        raise InputError(f"--epochs {options.epochs}: at least one is needed")
    folder: Path = options.folder or options.run / "trained" / trial.trial_id
    if result := finished(folder):
        raise InputError(f"{folder}: trained already ({result}); --folder DIR trains it once more, into another")
    _refuse_other_length(folder, options.epochs)
    again = shlex.join(["python", "-m", NAME, *words])
    return Job(run, trial, folder, options.epochs, _words(options, run, trial, folder), again)


def _refuse_other_length(folder: Path, epochs: int) -> None:
    """What was begun goes on as it was begun: its learning rate falls over all of its epochs."""
    try:
        begun = json.loads((folder / "config.json").read_text())["epochs"]
    except (OSError, ValueError, LookupError):
        return
    if begun != epochs:
        raise InputError(
            f"{folder}: begun for {begun} epochs, not {epochs}; --epochs {begun} goes on with it, --folder DIR starts "
            "another"
        )


def _words(options: argparse.Namespace, run: Run, trial: Trial, folder: Path) -> list[str]:
    given = {
        "--trainable": run.info["trainable"],
        "--epochs": options.epochs,
        "--data": run.info["data"]["name"],
        "--val-images": run.info.get("space", {}).get("data", {}).get("val_images"),
        "--train-images": options.train_images,
        "--root": options.root,
        "--folder": folder,
    }
    words = [word for key, value in given.items() if value is not None for word in (key, f"{value}")]
    return [*words, "--test", *settings(run, trial)]


# --- what is done -----------------------------------------------------------------------------------------------------


def _trained(job: Job, interrupts: Interrupts) -> int:
    existed = job.folder.exists()
    progress = EpochsLeft(job.epochs, _labels(job.run), job.run.info.get("metrics", {}))
    data: list[str] = []
    heard = Heard(progress, lambda line: _other(line, data, progress))
    _announce(job, progress)
    try:
        with progress:
            code = train(job.words, job.folder, heard)
    except Interrupted as interrupted:
        interrupts.ignore()
        _say_how_to_go_on(f"interrupted after epoch {progress.last} of {job.epochs}", job)
        return interrupted.exit_code
    interrupts.ignore()  # what is left takes a second
    if code == DONE:
        return _conclude(job, data)
    for reason in heard.reasons or [f"python -m trainables.train ended with exit code {code}"]:
        print(f"{NAME}: {reason}", file=sys.stderr)
    if code == BAD_INPUT:
        _leave_nothing(job.folder, existed)
        return BAD_INPUT
    _say_how_to_go_on(f"failed after epoch {progress.last} of {job.epochs}", job)
    return FAILED


def _labels(run: Run) -> dict[str, str]:
    names = dict.fromkeys([*(o.metric for o in run.history.objectives), "val_accuracy", "images_per_second"])
    return {name: metric_label(name, run.info["data"]) for name in names}


def _announce(job: Job, progress: EpochsLeft) -> None:
    """What is about to be trained, where it goes on, and on which pictures."""
    begun = read_curves(job.folder)
    progress.announce(wrapped(f"{job.trial.trial_id} of {job.run.name}: {' '.join(settings(job.run, job.trial))}"))
    if begun:
        progress.announce(f"goes on behind epoch {begun[-1].number} of {job.epochs}")
    took = job.run.info.get("space", {}).get("data", {}).get("train_images")
    if took is not None and "--train-images" not in job.words:
        progress.announce(
            wrapped(f"on all pictures; the search took {took:,} of them (--train-images {took} keeps to so many)")
        )


def _other(line: str, data: list[str], progress: EpochsLeft) -> None:
    if line.startswith("data: "):
        data.append(line.removeprefix("data: "))
        progress.announce(wrapped(line))
    else:
        print(line, file=sys.stderr)


def _conclude(job: Job, data: Sequence[str]) -> int:
    trained = read_trained(job.run, job.trial, job.folder)
    write_trained(trained, _conditions(job, data))
    where = f"{job.folder}: {SUMMARY}, {RESULT}, {CURVES} and the checkpoint"
    say("\n".join([headline(trained), "", beside_search(trained), "", wrapped(where, "  ")]))
    return DONE


def _conditions(job: Job, data: Sequence[str]) -> dict[str, Any]:
    return {
        "Configuration": ", ".join(settings(job.run, job.trial)),
        "Data": "; ".join(data),
        "Machine": str(describe_machine()),
        "Ended": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "Commit": git_commit(Path(__file__).parent),
        "Versions": ", ".join(f"{name} {version}" for name, version in versions().items()),
        "Command": f"`{_stated(job)}`",
    }


def _stated(job: Job) -> str:
    """The command without folders of the machine."""
    words = ["python", "-m", NAME, job.run.name, "--trial", job.trial.trial_id, "--epochs", f"{job.epochs}"]
    if "--train-images" in job.words:
        words += job.words[job.words.index("--train-images") :][:2]
    return shlex.join(words)


def _say_how_to_go_on(what: str, job: Job) -> None:
    print(f"{what}; to go on:\n  {job.again}", file=sys.stderr)


def _leave_nothing(folder: Path, existed: bool) -> None:
    """A configuration that cannot run here leaves no folder behind."""
    if not existed and not (folder / CURVES).exists():
        shutil.rmtree(folder, ignore_errors=True)
        if folder.parent.name == "trained" and folder.parent.is_dir() and not any(folder.parent.iterdir()):
            folder.parent.rmdir()


if __name__ == "__main__":
    sys.exit(main())
