"""Folder of a new run: its name, its making, and its removal where the run ended before its first event."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import itertools
import os
import shlex
import shutil
from pathlib import Path

from search.exit_codes import InputError
from search.record.disk import describe_os_error, is_out_of_space
from search.record.journal import FILE_NAME
from search.record.run_lock import FILE_NAME as LOCK_NAME
from search.record.run_lock import lock_run
from search.record.source import FOLDER as SOURCE

BEFORE_THE_FIRST_EVENT = {FILE_NAME, LOCK_NAME, SOURCE}  # in the folder of a run


def has_begun(folder: Path) -> bool:
    """Return whether the folder has the first event of a run."""
    journal = folder / FILE_NAME
    return journal.is_file() and journal.stat().st_size > 0


def remove_what_never_began(folder: Path) -> None:
    """Remove the folder of a run that ended before its first event; leave any other as it is."""
    names = {path.name for path in folder.iterdir()}
    if names <= BEFORE_THE_FIRST_EVENT and (LOCK_NAME in names or SOURCE not in names):
        with lock_run(folder):
            shutil.rmtree(folder)


def new_folder(options: argparse.Namespace) -> Path:
    """Return the folder of the new run; it must not exist yet."""
    if options.name is not None:
        folder: Path = options.results / options.name
        if os.path.lexists(folder):
            resume = f"go on with it: --resume {shlex.quote(str(folder))}"
            other = resume if has_begun(folder) else "remove it: no run began there"
            raise InputError(f"{folder}: exists already; choose another --name, or {other}")
        return folder
    stem = f"{options.space.stem}-{datetime.date.today().isoformat()}"
    folders = (Path(options.results, f"{stem}-{number}") for number in itertools.count(1))
    return next(folder for folder in folders if not os.path.lexists(folder))


def made_folder(options: argparse.Namespace) -> Path:
    """Make the folder of the new run; another run that starts at the same moment may take the number."""
    while True:
        folder = new_folder(options)
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
                return folder
        except OSError as error:
            if is_out_of_space(error):
                raise
            raise cannot_be_made(folder, error) from error


def cannot_be_made(folder: Path, error: OSError) -> InputError:
    """Return the error of a folder that cannot be made."""
    return InputError(f"{folder}: cannot be made: {describe_os_error(error)}; --results DIR says where else")
