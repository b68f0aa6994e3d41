"""The memory of one configuration before it runs, and the largest batch that fits, on the command line.

    python -m search.memory batch_size=512 precision=bf16 optimizer=adamw [--available GIB] [--trainable NAME]

Nothing is trained, except two tiny networks where a machine is asked for the first time. Exit code 2: bad input.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from search.outcome import BAD_INPUT, DONE, InputError, Parser
from search.space.machine import describe_machine
from search.space.parameters import parameter_faults
from search.text.markdown import table
from search.text.wording import count, setting
from trainables.contract import (
    Config,
    Data,
    DataError,
    InfeasibleError,
    MemoryNeed,
    Resources,
    Scalar,
    Trainable,
    load_trainable,
)

GIB = 2**30
ROWS, COLUMNS = "optimizer", "precision"  # of the table of largest batches


@dataclass(frozen=True)
class Question:
    """What would this configuration take on these resources?"""

    trainable: Trainable
    config: Config
    data: Data
    resources: Resources
    available: int | None  # bytes; None: what this machine has

    def need(self, **changes: Scalar) -> MemoryNeed:
        """Of the configuration with these settings changed.

        Raises:
            InputError: the trainable cannot say.
            InfeasibleError: it cannot run on these resources.
        """
        need = self.trainable.memory({**self.config, **changes}, self.data, self.resources)
        if need is None:
            raise InputError("this trainable does not predict memory; --trainable vgg19_cifar10 does")
        return need if self.available is None else MemoryNeed(need.parts, self.available)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the answer; the exit code."""
    try:
        print(answer(_question(_parser().parse_intermixed_args(arguments))))
    except (InputError, LookupError, DataError, InfeasibleError) as error:
        print(f"search.memory: {error}", file=sys.stderr)
        return BAD_INPUT
    return DONE


# --- the question -----------------------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m search.memory", description=(__doc__ or "").split("\n")[0], allow_abbrev=False)
    parser.add_argument("settings", nargs="*", metavar="NAME=VALUE", help="parameters of the trainable")
    parser.add_argument("--available", type=float, metavar="GIB", help="default: what this machine or its GPU has")
    parser.add_argument("--trainable", default="vgg19_cifar10")
    return parser


def _question(options: argparse.Namespace) -> Question:
    trainable = load_trainable(options.trainable)
    config = dict(map(_setting, options.settings))
    for fault in parameter_faults({}, config, trainable.PARAMETERS, options.trainable):
        raise InputError(f"{'.'.join(map(str, fault.path[1:]))}: {fault.message}")
    if options.available is not None and not 0 < options.available < 1e9:
        raise InputError(f"--available {options.available:g}: a number of GiB is expected")
    available = None if options.available is None else int(options.available * GIB)
    machine = describe_machine()
    resources = Resources(cpus=machine.cores, gpus=len(machine.gpus))
    return Question(trainable, config, trainable.locate_data(Data()), resources, available)


def _setting(text: str) -> tuple[str, Scalar]:
    """`batch_size=512` with the type that it has in a space file."""
    name, equals, value = text.partition("=")
    try:
        parsed = YAML(typ="safe").load(value)
    except YAMLError:
        parsed = None
    if not equals or not isinstance(parsed, int | float | str | bool):
        raise InputError(f'"{text}": expected NAME=VALUE, as in batch_size=512')
    return name, parsed


# --- the answer -------------------------------------------------------------------------------------------------------


def answer(question: Question) -> str:
    """The parts as a table, whether they fit, and the largest batches that do."""
    need = question.need()
    parts = [*need.parts.items(), ("total", need.total)]
    columns = {"takes": [name for name, _ in parts], "GiB": [f"{size / GIB:.3f}" for _, size in parts]}
    return "\n\n".join([table(columns), _verdict(need), *_batches(question, need.available)])


def _verdict(need: MemoryNeed) -> str:
    if need.available is None:
        return "how much there is is not known here; say it with --available GIB"
    word = "fits" if need.fits else "does not fit"
    return f"{word}: {need.total / GIB:.2f} GiB of {need.available / GIB:.2f} GiB"


def _batches(question: Question, available: int | None) -> list[str]:
    """The table of largest batches; nothing where there is no limit or no such parameter."""
    if available is None or "batch_size" not in (question.trainable.PARAMETERS or {}):
        return []
    rows, columns = (_choices(question, name) for name in (ROWS, COLUMNS))
    cells = {ROWS: [setting(row) for row in rows]}
    for column in columns:
        cells[setting(column)] = [_largest_batch(question, available, {ROWS: row, COLUMNS: column}) for row in rows]
    processes = question.trainable.layout(question.config, question.resources).processes
    over = f" over {count(processes, 'process')[:-1]}es" if processes > 1 else ""
    return [f"largest batch_size that fits{over}, all else as given:", table(cells)]


def _choices(question: Question, name: str) -> list[Scalar]:
    """Values of a parameter that these resources allow."""
    parameter = (question.trainable.PARAMETERS or {})[name]
    return [c for c in parameter.choices if not question.trainable.unavailable(name, c, question.resources)]


def _largest_batch(question: Question, available: int, changes: dict[str, Scalar]) -> str:
    config = {**question.config, **changes}
    most = question.trainable.largest_batch(config, question.data, question.resources, available)
    return f"{most:,}" if most else "–"


if __name__ == "__main__":
    sys.exit(main())
