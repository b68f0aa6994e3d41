"""What the commands that read a run share: bad input is one line and exit code 2, and a reader may leave early."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from search.outcome import BAD_INPUT, DONE, FAILED, InputError
from search.record.history import Trial
from search.results import Run, load
from search.space.faults import nearest


class UnmetError(Exception):
    """What was asked for makes sense, and the run has no such thing; one line, with what is near."""


def answered(name: str, answer: Callable[[], str]) -> int:
    """Print the answer, or the one line of why there is none; the exit code."""
    try:
        say(answer())
    except InputError as error:
        return _refused(name, error, BAD_INPUT)
    except UnmetError as error:
        return _refused(name, error, FAILED)
    except OSError as error:
        return _refused(name, f"{error.filename or ''}: {error.strerror or error}".removeprefix(": "), FAILED)
    return DONE


def say(text: str) -> None:
    """Print, to whoever still reads."""
    try:
        print(text, flush=True)
    except BrokenPipeError:  # as by `| head`; Python's own last flush must find an open file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def opened(folder: Path) -> Run:
    """The run in that folder, finished or not.

    Raises:
        InputError: it is not the folder of a run.
    """
    try:
        return load(folder)
    except (OSError, ValueError) as error:
        raise InputError(str(error)) from None


def trial_of(run: Run, trial_id: str) -> Trial:
    """The trial of that name.

    Raises:
        InputError: there is none.
    """
    try:
        return run.history.trials[trial_id]
    except KeyError:
        names = list(run.history.trials)
        near = nearest(trial_id, names)
        if len(names) > 1 and "did you mean" not in near:
            near = f"; there are {names[0]} to {names[-1]}"
        raise InputError(f'{run.name} has no trial "{trial_id}"{near}') from None


def _refused(name: str, error: object, code: int) -> int:
    print(f"{name}: {error}", file=sys.stderr)
    return code
