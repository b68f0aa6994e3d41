"""Commands that train one configuration of a run: as in the search, or in full."""

from __future__ import annotations

import shlex
from pathlib import Path

from search.record.dataframes import Run
from search.record.defaults import changed_defaults
from search.record.events import Opening
from search.record.source import recorded_copy
from search.record.trial import Trial
from search.text.configurations import assignments
from search.text.shell import continued
from trainables.contract import EPOCHS, find_trainable


def full_epochs(info: Opening, trial: Trial) -> int:
    """Return the epochs of a full training of the trial's configuration.

    They are those that the search chose, or those that the trainable names as usual, or else those of all trials.
    """
    chosen = trial.config.get(EPOCHS) if EPOCHS in info.parameters else None
    usual: int | None = getattr(find_trainable(info.trainable), "USUAL_EPOCHS", None)
    return int(chosen or usual or (info.budget.epochs if info.budget else 1))


def named_folder(folder: Path) -> Path:
    """Return a folder as it was given; by its whole path if it was given as `.` or `..`, which end in no name."""
    return folder if folder.name not in ("", "..") else folder.resolve()


def full_command(folder: Path, trial: Trial, epochs: int) -> list[str]:
    """Return the command that trains this trial's configuration in full, in parts that stay on one line each."""
    return ["python -m search.train", shlex.quote(str(folder)), f"--trial {trial.trial_id}", f"--epochs {epochs}"]


def command(run: Run, trial: Trial) -> str:
    """Return the command that trains or probes this configuration as in the search, over lines of at most 80 columns.

    It runs where the search was started, and writes into a new folder beside that of the run.
    """
    data, folder = run.info.data_settings, named_folder(run.folder)
    options = {
        "--trainable": recorded_copy(run.info.trainable, folder),
        "--epochs": trial.epochs or None,
        "--data": None if run.info.source else run.info.data.name,  # a user's file has its own
        "--root": data.get("root"),
        "--train-samples": data.get("train_images"),
        "--val-samples": data.get("val_images"),
        "--folder": f"{folder}-{trial.trial_id}",
    }
    words = [f"{key} {shlex.quote(str(value))}" for key, value in options.items() if value is not None]
    words += [] if trial.epochs else ["--probe"]
    return continued(["python -m trainables.train", *words, *map(shlex.quote, settings(run, trial))])


def settings(run: Run, trial: Trial) -> list[str]:
    """Return the configuration as NAME=VALUE, with all digits; its length is an option of the commands.

    A default of the run that has another value in this version is stated, too.
    """
    config = {**changed_defaults(run.info), **run.state.ordered_config(trial)}
    return assignments({name: value for name, value in config.items() if name != EPOCHS})
