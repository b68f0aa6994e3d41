"""Shared parts of the commands that read a run: their parser, one-line errors and exit codes."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search.exit_codes import BAD_INPUT, DONE, FAILED, INTERRUPTED, InputError, Parser
from search.record.trial import Trial
from search.space.parameters import find_parameter_problems
from search.text.markdown import wrap
from trainables.contract import Scalar, Trainable
from trainables.setting_check import did_you_mean
from trainables.setting_text import parsed

if TYPE_CHECKING:
    from search.record.dataframes import Run  # brings pandas, for which a wrong command should not wait


class NoResultError(Exception):
    """A valid request that the run has no result for; the message is one line and names the nearest result."""


def command_parser(command: str, documentation: str | None, at_end: int = 0) -> Parser:
    """Return a parser described by the command's documentation: its first paragraph, and `at_end` of the last ones."""
    first, *others = (documentation or "").strip().split("\n\n")
    return Parser(
        prog=f"python -m {command}",
        description=wrap(first),
        epilog="\n\n".join(map(wrap, others[len(others) - at_end :])) or None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def run_parser(command: str, documentation: str | None) -> Parser:
    """Return the parser of a command with the argument RUN."""
    parser = command_parser(command, documentation)
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a run, finished or not")
    return parser


def run_command(command: str, answer: Callable[[], str]) -> int:
    """Print the answer, or its error in one line; return the exit code."""
    try:
        print_output(answer())
        return DONE
    except (InputError, NoResultError) as error:
        reason, code = str(error), BAD_INPUT if isinstance(error, InputError) else FAILED
    except OSError as error:
        reason, code = f"{error.filename or ''}: {error.strerror or error}".removeprefix(": "), FAILED
    except KeyboardInterrupt:
        reason, code = "interrupted", INTERRUPTED
    print(f"{command}: {reason}", file=sys.stderr)
    return code


def print_output(text: str) -> None:
    """Print, also when the reader of a pipe has left, as in `| head`, or the encoding lacks a character."""
    replace_unknown_characters()
    try:
        print(text, flush=True)
    except BrokenPipeError:  # Python flushes again at its end, and needs an open file then
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def open_missing_streams() -> None:
    """Give a process that was started without output one that nobody reads."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115


def replace_unknown_characters() -> None:
    """Let the output have a question mark for each character that its encoding lacks."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # in a notebook it is another object
        sys.stdout.reconfigure(errors="replace")


def load_run(folder: Path) -> Run:
    """Load the run in that folder, finished or not.

    Raises:
        InputError: the folder holds no run.
    """
    from search.record.dataframes import load

    try:
        return load(folder)
    except (OSError, ValueError) as error:
        raise InputError(str(error)) from None


def find_trial(run: Run, trial_id: str) -> Trial:
    """Return the trial with that name.

    Raises:
        InputError: the run has no such trial.
    """
    trials = run.state.trials
    if trial_id in trials:
        return trials[trial_id]
    names = list(trials)
    near = did_you_mean(trial_id, names)
    if len(names) > 1 and "did you mean" not in near:
        near = f"; there are {names[0]} to {names[-1]}"
    raise InputError(f'{run.name} has no trial "{trial_id}"{near}')


def given_settings(words: Sequence[str], trainable: Trainable, name: str) -> dict[str, Scalar]:
    """Return settings given as NAME=VALUE, read as `trainables.train` reads them; `name`: of the trainable.

    Raises:
        InputError: a word is no setting, or the trainable has no such parameter or value.
    """
    config: dict[str, Any] = {}
    for word in words:
        parameter, equals, value = word.partition("=")
        if not equals:
            raise InputError(f'"{word}": expected NAME=VALUE, as in batch_size=512')
        config[parameter] = parsed(value, (trainable.PARAMETERS or {}).get(parameter))
    for fault in find_parameter_problems({}, config, trainable.PARAMETERS, name):
        raise InputError(f"{'.'.join(map(str, fault.path[1:]))}: {fault.message}")
    return config
