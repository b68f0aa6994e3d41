"""Write the pages that are taken from the code: docs/cli.md, docs/columns.md and docs/space.schema.json.

python docs/write_reference.py
"""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path

from search.__main__ import COMMANDS, main
from search.record.columns import COLUMNS, describe_columns
from search.space.schema import space_schema
from trainables.contract import load_trainable

DOCS = Path(__file__).parent
TRAINABLE = "vgg19_cifar10"
HEAD = """# Commands

`python -m search.COMMAND` and `training-search COMMAND` are the same. In bash, and in zsh after `autoload -U
bashcompinit; bashcompinit`, `eval "$(register-python-argcomplete training-search)"` completes commands and options of
the second. This page is their `--help`; `python docs/write_reference.py` writes it.
"""


def help_of(name: str) -> str:
    """Return the help of a command, in lines of at most 100 columns."""
    os.environ["COLUMNS"] = "100"
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main([name, "--help"])
    return printed.getvalue().strip()


def commands() -> str:
    """Return the page of all commands as Markdown."""
    sections = [f"\n## {name}: {meaning}\n\n```\n{help_of(name)}\n```\n" for name, (_, meaning) in COMMANDS.items()]
    return HEAD + "".join(sections)


def columns() -> str:
    """Return the page of all columns that a run of VGG19 can have, as Markdown."""
    trainable = load_trainable(TRAINABLE)
    settings = [f"config.{name}" for name in trainable.PARAMETERS or {}]
    metrics = list(trainable.METRICS or {})
    return describe_columns([*COLUMNS, *settings, *metrics], TRAINABLE, {})


if __name__ == "__main__":
    (DOCS / "cli.md").write_text(commands())
    (DOCS / "columns.md").write_text(columns())
    (DOCS / "space.schema.json").write_text(space_schema())
