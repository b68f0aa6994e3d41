"""Write docs/cli.md, the help of every command.

python docs/write_cli.py
"""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path

from search.__main__ import COMMANDS, main

HEAD = """# Commands

`python -m search.COMMAND` and `training-search COMMAND` are the same. This page is their `--help`; `python
docs/write_cli.py` writes it.
"""


def help_of(name: str) -> str:
    """Return the help of a command, in lines of at most 100 columns."""
    os.environ["COLUMNS"] = "100"
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main([name, "--help"])
    return printed.getvalue().strip()


def commands() -> str:
    """Return the page as Markdown."""
    sections = [f"\n## {name}: {meaning}\n\n```\n{help_of(name)}\n```\n" for name, (_, meaning) in COMMANDS.items()]
    return HEAD + "".join(sections)


if __name__ == "__main__":
    (Path(__file__).parent / "cli.md").write_text(commands())
