"""A run in the tools people have: a study for optuna-dashboard, logs for TensorBoard.

    python -m search.export RUN --optuna FILE.log     # then: optuna-dashboard FILE.log
    python -m search.export RUN --optuna FILE.db      # then: optuna-dashboard sqlite:///FILE.db
    python -m search.export RUN --tensorboard DIR     # then: tensorboard --logdir DIR

The run is only read, finished or not; run again, the command brings the copy up to date, also one that is open.
--every SECONDS does so until the run ends. Exit codes: 0 done, 1 failed, 2 bad input.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from search.commandline import UnmetError, answered, opened, say
from search.outcome import InputError, Parser
from search.results import Run
from search.text.wording import count


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the copies and say how to open them; the exit code."""
    return answered("search.export", lambda: answer(parser().parse_args(arguments)))


def parser() -> argparse.ArgumentParser:
    """What may be asked."""
    known = Parser(prog="python -m search.export", description=(__doc__ or "").split("\n")[0], allow_abbrev=False)
    known.add_argument("run", type=Path, metavar="RUN", help="a run's folder, finished or not")
    known.add_argument("--optuna", type=Path, metavar="FILE", help="FILE.log (fast), or FILE.db for SQLite")
    known.add_argument("--tensorboard", type=Path, metavar="DIR")
    known.add_argument("--every", type=float, metavar="SECONDS", help="again and again, until the run ends")
    return known


def answer(options: argparse.Namespace, sleep: Callable[[float], None] = time.sleep) -> str:
    """Write the copies, once or until the run has ended; how to open them."""
    if not (options.optuna or options.tensorboard):
        raise InputError("nothing to write: --optuna FILE.log, --tensorboard DIR, or both")
    if options.every is not None and not options.every >= 1:
        raise InputError(f"--every {options.every:g}: expected at least 1 (seconds)")
    run = opened(options.run)
    while True:
        text = "\n".join(_exported(run, options))
        if options.every is None or run.history.end is not None:
            return text
        say(text)
        sleep(options.every)
        run = opened(options.run)


def _exported(run: Run, options: argparse.Namespace) -> Iterator[str]:
    if options.optuna:
        yield _to_optuna(run, options.optuna)
    if options.tensorboard:
        yield _to_tensorboard(run, options.tensorboard)


def _to_optuna(run: Run, path: Path) -> str:
    from search.export.to_optuna import DATABASES, JOURNALS, export

    if path.suffix not in (*DATABASES, *JOURNALS):
        raise InputError(f"--optuna {path}: expected a name that ends in {', '.join((*DATABASES, *JOURNALS))}")
    if not path.parent.is_dir():
        raise InputError(f"--optuna {path}: there is no folder {path.parent}")
    try:
        trials, new = export(run, path)
    except OSError:
        raise
    except Exception as error:  # what a file that is something else raises: SQLAlchemy's, Optuna's, JSON's own
        raise UnmetError(f"{path}: cannot be written as a study ({str(error).splitlines()[0]}); remove it?") from error
    name = path if path.suffix in JOURNALS else f"sqlite:///{path}"
    return f"{count(trials, 'trial')}, {new} new: optuna-dashboard {name}"


def _to_tensorboard(run: Run, folder: Path) -> str:
    from search.export.to_tensorboard import export

    if folder.exists() and not folder.is_dir():
        raise InputError(f"--tensorboard {folder}: is a file; expected a folder, or a new name")
    return f"{count(export(run, folder), 'trial')}: tensorboard --logdir {folder}"


if __name__ == "__main__":
    sys.exit(main())
