"""Export a run as a study for optuna-dashboard or as logs for TensorBoard.

    python -m search.export RUN --optuna FILE.log     # then: optuna-dashboard FILE.log
    python -m search.export RUN --optuna FILE.db      # then: optuna-dashboard sqlite:///FILE.db
    python -m search.export RUN --tensorboard DIR     # then: tensorboard --logdir DIR

The run is only read, finished or not. The same command again updates the copy, also while a dashboard has it open;
--every SECONDS repeats it until the run ends. Exit codes: 0 done, 1 failed, 2 bad input.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from search.commandline import load_run, print_output, run_command, run_parser
from search.exit_codes import InputError
from search.record.dataframes import Run
from search.record.run_end import run_status
from search.text.errors import first_line
from search.text.numbers import plural


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the copies, print the commands that open them, and return the exit code."""
    return run_command("search.export", lambda: answer(parser().parse_args(arguments)))


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's arguments."""
    known = run_parser("search.export", __doc__)
    known.add_argument("--optuna", type=Path, metavar="FILE", help="FILE.log (fast), or FILE.db for SQLite")
    known.add_argument("--tensorboard", type=Path, metavar="DIR", help="folder for the logs")
    known.add_argument("--every", type=float, metavar="SECONDS", help="repeat until the run ends")
    return known


def answer(options: argparse.Namespace, sleep: Callable[[float], None] = time.sleep) -> str:
    """Write the copies, once or until the run has ended, and return the commands that open them."""
    if not (options.optuna or options.tensorboard):
        raise InputError("nothing to write: --optuna FILE.log, --tensorboard DIR, or both")
    if options.every is not None and not options.every >= 1:
        raise InputError(f"--every {options.every:g}: expected at least 1 (seconds)")
    while True:
        run = load_run(options.run)
        lines = [_to_optuna(run, options.optuna)] if options.optuna else []
        lines += [_to_tensorboard(run, options.tensorboard)] if options.tensorboard else []
        if options.every is None or run_status(options.run, run.state.end) != "running":
            return "\n".join(lines)
        print_output("\n".join(lines))
        sleep(options.every)


def _to_optuna(run: Run, path: Path) -> str:
    from search.export.to_optuna import JOURNALS, export

    if not path.parent.is_dir():
        raise InputError(f"--optuna {path}: there is no folder {path.parent}")
    try:
        trials, new = export(run, path)
    except (OSError, InputError):
        raise
    except Exception as error:  # SQLAlchemy's, Optuna's or JSON's own, if the file is something else
        raise InputError(f"--optuna {path}: is no study of Optuna ({first_line(error)}); give another name") from error
    name = str(path) if path.suffix in JOURNALS else f"sqlite:///{path}"
    return f"{plural(trials, 'trial')}, {new} new: optuna-dashboard {shlex.quote(name)}"


def _to_tensorboard(run: Run, folder: Path) -> str:
    from search.export.to_tensorboard import export

    if folder.exists() and not folder.is_dir():
        raise InputError(f"--tensorboard {folder}: is a file; expected a folder, or a new name")
    return f"{plural(export(run, folder), 'trial')}: tensorboard --logdir {shlex.quote(str(folder))}"


if __name__ == "__main__":
    sys.exit(main())
