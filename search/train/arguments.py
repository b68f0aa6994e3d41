"""Arguments of `python -m trainables.train` for the data and the training file of a run."""

from __future__ import annotations

from pathlib import Path

from search.record.dataframes import Run
from search.record.source import absolute_file, usable_file


def same_data(run: Run, folder: Path, root: str | None = None) -> list[str]:
    """Return the arguments with which a training sees the samples that it saw in the run."""
    return data_arguments(run, folder, root, run.info.data_settings.get("train_images"))


def data_arguments(
    run: Run,
    folder: Path,
    root: str | None = None,
    train_samples: int | None = None,
    val_samples: int | None = None,
) -> list[str]:
    """Return the arguments; `folder` is the run's as the user gave it, `root` another place of the data."""
    searched = run.info.data_settings.get("val_images")
    given = {
        "--trainable": usable_file(absolute_file(run.info.trainable, folder), run.info.source, folder.absolute()),
        "--data": run.info.data.name,
        "--val-samples": searched if val_samples is None else val_samples,
        "--train-samples": train_samples,
        "--root": root or run.info.data_settings.get("root"),
    }
    return [word for key, value in given.items() if value is not None for word in (key, f"{value}")]
