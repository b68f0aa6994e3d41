"""Predict the memory of one configuration and the largest batch that fits, without running it.

    python -m search.memory batch_size=512 precision=bf16 optimizer=adamw [--available GIB] [--trainable NAME]

The first call on a machine trains two tiny networks to calibrate the prediction, and takes a minute or two.
Exit code 2: bad input.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from search.commandline import command_parser, given_settings, run_command
from search.exit_codes import InputError
from search.space.machine import GIB, describe_machine
from search.text.configurations import format_setting
from search.text.markdown import format_table
from trainables.contract import (
    Config,
    Data,
    DataError,
    InfeasibleError,
    MemoryNeed,
    OwnCodeError,
    Resources,
    Trainable,
    load_trainable,
)

ROWS, COLUMNS = "optimizer", "precision"  # of the table of largest batches


@dataclass(frozen=True)
class Question:
    """A configuration, and the data and resources it would run on."""

    trainable: Trainable
    config: Config
    data: Data
    resources: Resources
    available: int | None  # bytes; None: the memory of this machine


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the answer and return the exit code."""
    return run_command("search.memory", lambda: _answered(arguments))


def _answered(arguments: Sequence[str] | None) -> str:
    try:
        return answer(_question(arguments))
    except (LookupError, DataError, InfeasibleError, OwnCodeError) as error:
        raise InputError(f"{error}") from error


def _question(arguments: Sequence[str] | None) -> Question:
    parser = command_parser("search.memory", __doc__)
    parser.add_argument("settings", nargs="*", metavar="NAME=VALUE", help="parameters of the trainable")
    parser.add_argument("--available", type=float, metavar="GIB", help="default: memory of this machine or its GPU")
    parser.add_argument("--trainable", default="vgg19_cifar10")
    parser.add_argument("--root", help="folder of the data")
    options = parser.parse_intermixed_args(arguments)
    trainable = load_trainable(options.trainable)
    config = given_settings(options.settings, trainable, options.trainable)
    if options.available is not None and not 0 < options.available < 1e9:
        raise InputError(f"--available {options.available:g}: a number of GiB is expected")
    available = None if options.available is None else int(options.available * GIB)
    return Question(
        trainable, config, trainable.locate_data(Data(root=options.root)), describe_machine().resources, available
    )


def answer(question: Question) -> str:
    """Return a table of the parts, whether they fit, and the largest batches that do.

    Raises:
        InputError: the memory cannot be predicted.
        InfeasibleError: the configuration cannot run on these resources.
    """
    need = question.trainable.memory(question.config, question.data, question.resources)
    if need is None:
        raise InputError("the memory of this training cannot be predicted")
    if question.available is not None:
        need = MemoryNeed(need.parts, question.available)
    word = "fits" if need.fits else "does not fit"
    verdict = f"{word}: {need.total / GIB:.2f} GiB of {need.available / GIB:.2f} GiB"
    parts = [*need.parts.items(), ("total", need.total)]
    columns = {"part": [name for name, _ in parts], "GiB": [f"{size / GIB:.3f}" for _, size in parts]}
    return "\n\n".join([format_table(columns), verdict, *_batches(question, need.available)])


def _batches(question: Question, available: int) -> list[str]:
    """Return the table of largest batches; empty without a batch size."""
    trainable, resources = question.trainable, question.resources
    parameters = trainable.PARAMETERS or {}
    if "batch_size" not in parameters:
        return []
    rows, columns = (
        [value for value in parameters[name].choices if not trainable.unavailable(name, value, resources)]
        for name in (ROWS, COLUMNS)
    )
    cells = {ROWS: [format_setting(row) for row in rows]}
    for column in columns:
        configs = [{**question.config, ROWS: row, COLUMNS: column} for row in rows]
        batches = [trainable.largest_batch(config, question.data, resources, available) for config in configs]
        cells[format_setting(column)] = [f"{batch:,}" if batch else "–" for batch in batches]
    processes = trainable.layout(question.config, resources).processes
    over = f" over {processes:,} processes" if processes > 1 else ""
    heading = f"largest batch_size that fits{over}, at most all training samples, other settings as given:"
    return [heading, format_table(cells)]


if __name__ == "__main__":
    sys.exit(main())
