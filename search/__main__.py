# PYTHON_ARGCOMPLETE_OK
"""The command `training-search COMMAND ...`: each command is also a module, `python -m search.COMMAND`.

training-search run spaces/throughput.yaml
training-search check flowers.py
training-search pick results/throughput-2026-11-25-1

The shell asks it for completions, see docs/cli.md.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import sys
from collections.abc import Sequence

from search.exit_codes import BAD_INPUT, COMPLETING, DONE, Parser

# name -> (module, what it does); a space file without a command before it is searched
COMMANDS = {
    "run": ("search.run", "search a space file"),
    "check": ("search.check", "check a training file before a search, in a minute or two"),
    "memory": ("search.memory", "predict the memory of one configuration, and the largest batch"),
    "pick": ("search.pick.__main__", "choose a configuration of a run by requirements"),
    "advise": ("search.advise.__main__", "measure which change of one setting makes one faster"),
    "train": ("search.train.__main__", "train one configuration of a run in full"),
    "compare": ("search.compare.__main__", "compare two or more runs"),
    "page": ("search.page.__main__", "write the page of a run, or serve it"),
    "figures": ("search.figures", "write the figures of a run as PNG and SVG"),
    "runs": ("search.runs.__main__", "list the runs in a folder, as a table, JSON or a page"),
    "export": ("search.export.__main__", "export a run for optuna-dashboard or TensorBoard"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if COMPLETING in os.environ:
        words = _typed_words()
    first = words[0] if words else "--help"
    if first == "--version":
        print(f"training-search {importlib.metadata.version('training-search')}")
        return DONE
    if first in ("-h", "--help"):
        print("usage: training-search COMMAND ...\n\ncommands, each with its own --help:")
        print("\n".join(f"  {name:<9}{meaning}" for name, (_, meaning) in COMMANDS.items()))
        return DONE if words else BAD_INPUT
    is_path = first.startswith("-") or first.endswith((".yaml", ".yml")) or os.path.exists(first)
    if first not in COMMANDS and not is_path:
        from trainables.setting_check import did_you_mean

        print(f'training-search: no command "{first}"{did_you_mean(first, COMMANDS)}', file=sys.stderr)
        return BAD_INPUT
    name = first if first in COMMANDS else "run"
    module = importlib.import_module(COMMANDS[name][0])
    code: int = module.main(words[1:] if first in COMMANDS else words)
    return code


def _typed_words() -> list[str]:
    """Return the command that stands before the cursor, for its own parser to complete; otherwise complete commands."""
    before = os.environ["COMP_LINE"][: int(os.environ["COMP_POINT"])].split(" ")
    if len(before) > 2 and before[1] in COMMANDS:
        os.environ[COMPLETING] = "2"
        return [before[1]]
    parser = Parser()
    parser.add_argument("command", choices=COMMANDS)
    parser.parse_args()  # exits
    return []


if __name__ == "__main__":
    sys.exit(main())
