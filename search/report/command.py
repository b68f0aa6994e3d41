"""The commands that train one configuration of a run: as the search did, or in full."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from search.record.history import Trial
from search.results import Run
from search.text.markdown import WIDTH
from search.text.wording import setting

FULL_EPOCHS = 200  # what VGG19 was trained for by those who asked first, and what most tables of it are of


def full_command(folder: Path, trial: Trial, epochs: int = FULL_EPOCHS) -> list[str]:
    """The command that trains this trial's configuration in full, in parts that belong on a line each."""
    return [f"python -m search.train {shlex.quote(str(folder))}", f"--trial {trial.trial_id}", f"--epochs {epochs}"]


def command(run: Run, trial: Trial) -> str:
    """The command that trains this trial's configuration alone, over lines of at most 80 columns where words allow.

    It names the data but not where they lie, and puts what it makes into a folder of its own under `results`.
    """
    data = run.info.get("space", {}).get("data", {})
    options = {
        "--trainable": run.info["trainable"],
        "--epochs": trial.epochs or None,  # a probe had none
        "--data": run.info["data"]["name"],
        "--train-images": data.get("train_images"),
        "--val-images": data.get("val_images"),
        "--folder": f"results/{run.name}-{trial.trial_id}",
    }
    words = [f"{key} {shlex.quote(str(value))}" for key, value in options.items() if value is not None]
    return continued(["python -m trainables.train", *words, *map(shlex.quote, settings(run, trial))])


def settings(run: Run, trial: Trial) -> list[str]:
    """Its configuration as NAME=VALUE, with all digits."""
    return [f"{key}={_exact(value)}" for key, value in run.history.ordered(trial).items()]


def _exact(value: Any) -> str:
    return setting(value) if isinstance(value, bool) else str(value)


def continued(words: Sequence[str]) -> str:
    """Words over lines of at most 80 columns that end in a backslash, so that the shell takes them as one."""
    lines = [words[0]]
    for word in words[1:]:
        if len(lines[-1]) + len(word) + len("  \\") <= WIDTH:
            lines[-1] += f" {word}"
        else:
            lines.append(f"    {word}")
    return " \\\n".join(lines)
