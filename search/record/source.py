"""A user's training file in a run: a copy in the run's folder, and which of the two to use.

The copy is used where the user's file is not at hand, as on other nodes of a cluster, or has changed since.
"""

from __future__ import annotations

import os
from pathlib import Path

from search.exit_codes import InputError
from trainables.contract import Source, source_of

FOLDER = "source"  # in the run's folder


def save_source(source: Source, run_folder: Path) -> None:
    """Copy the file, and those beside it that it imports, into the run's folder.

    Raises:
        OSError: they cannot be written.
    """
    for name, content in source.files.items():
        copy = run_folder / FOLDER / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(content)


def recorded_name(trainable: str, results: Path) -> str:
    """Return how the journal names a trainable: a file by its path from the run's folder, so that both can move."""
    if not trainable.endswith(".py"):
        return trainable
    return Path(os.path.relpath(trainable, results.absolute() / "RUN")).as_posix()


def recorded_copy(recorded: str, run_folder: Path) -> str:
    """Return the trainable as a command names it that works wherever the run's folder is."""
    return _copy_of(recorded, run_folder).as_posix() if recorded.endswith(".py") else recorded


def usable_file(trainable: str, digest: str, run_folder: Path) -> str:
    """Return the trainable, or the path of the run's copy if the file is missing or another one now."""
    if not digest or _digest(trainable) == digest:
        return trainable
    return str(_copy_of(trainable, run_folder))


def absolute_file(recorded: str, run_folder: Path) -> str:
    """Return the trainable of a journal; a file by its absolute path."""
    return os.path.normpath(run_folder.absolute() / recorded) if recorded.endswith(".py") else recorded


def recorded_file(recorded: str, digest: str, run_folder: Path) -> str:
    """Return the trainable of a run that goes on, from its journal.

    Raises:
        InputError: its file has changed, so that new measurements would not be comparable.
    """
    if not digest:
        return recorded
    path = Path(absolute_file(recorded, run_folder))
    copy = _copy_of(recorded, run_folder.absolute())
    if not path.exists():
        return str(copy)
    if (now := _digest(str(path))) != digest:
        what = f"has changed since the run began (sha256 {digest}, now {now or 'not readable'})"
        raise InputError(f"{path}: {what}; put back the copy in {copy.parent}, or start a new run")
    return str(path)


def _copy_of(trainable: str, run_folder: Path) -> Path:
    return run_folder / FOLDER / Path(trainable).name


def _digest(trainable: str) -> str:
    try:
        source = source_of(trainable)
    except LookupError:
        return ""
    return source.digest if source else ""
