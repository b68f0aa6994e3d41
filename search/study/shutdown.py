"""End of a run in its folder and on the terminal: complete, interrupted, failed, or because Ray is gone."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from search.execution.ray_watchdog import end_children
from search.exit_codes import DONE, FAILED, OUT_OF_DISK
from search.record.disk import describe_os_error, is_out_of_space

if TYPE_CHECKING:  # pandas is imported when there is something to say
    from search.record.dataframes import Run

ERROR_FILE = "error.txt"  # the traceback of what broke a run off


def finish_run(folder: Path, resume_command: str, interrupted: int | None = None) -> int:
    """Write tables and summary, say what was found; the exit code. `interrupted`: the one of the signal."""
    from search.study.study import write_results

    try:
        run = write_results(folder)
    except OSError as error:
        return report_failure(folder, resume_command, error)
    _say(run, resume_command if interrupted else None)
    return interrupted or (DONE if run.state.counts()["complete"] else FAILED)


def report_failure(folder: Path, resume_command: str, error: Exception) -> int:
    """Say what happened and how to go on, write what can be written; the exit code."""
    _write_what_can_be(folder)
    code = OUT_OF_DISK if is_out_of_space(error) else FAILED
    if isinstance(error, OSError):
        what = describe_os_error(error)
    else:
        what = f"the run broke off: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
        with contextlib.suppress(OSError):
            (folder / ERROR_FILE).write_text("".join(traceback.format_exception(error)), encoding="utf-8")
            what += f" (see {folder / ERROR_FILE})"
    how = "free some space, then" if code == OUT_OF_DISK else "to go on"
    if folder.is_dir():
        what += f"\n{how}:\n  {resume_command}"
    print(what, file=sys.stderr, flush=True)
    return code


def abandon(folder: Path, resume_command: str, why: str, exit_code: Callable[[], int]) -> None:
    """Ray will not answer any more: end the process here and now, with everything kept.

    The code is asked for last: the signal that ended Ray may be a moment behind.
    """
    _write_what_can_be(folder)
    print(f"\n{why}; to go on:\n  {resume_command}", file=sys.stderr, flush=True)
    end_children()
    os._exit(exit_code())


def _write_what_can_be(folder: Path) -> None:
    """The journal is the truth; tables and summary can be made from it at any time."""
    from search.study.study import write_results

    with contextlib.suppress(Exception):
        write_results(folder)


def _say(run: Run, resume_command: str | None) -> None:
    """The last lines: what was found and where it is, or how to go on."""
    from search.commandline import print_output
    from search.report.report import closing_lines

    lines = [closing_lines(run)] + [f"interrupted; to go on:\n  {resume_command}"] * (resume_command is not None)
    print_output("\n".join(lines))
