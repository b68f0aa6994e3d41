"""End of a run in its folder and on the terminal: complete, interrupted, failed, or because Ray is gone."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from search.execution.ray_watchdog import end_children
from search.exit_codes import DONE, FAILED, OUT_OF_DISK
from search.record.disk import describe_os_error, is_out_of_space
from search.text.errors import first_line
from search.text.unbreakable import Unbreakable

if TYPE_CHECKING:  # pandas is imported when there are results to write
    from search.record.dataframes import Run

ERROR_FILE = "error.txt"  # the traceback of what broke a run off


def keep_garbage() -> None:
    """Never collect what is garbage now: objects of Ray call Ray when they are deleted, and wait 60 s if it is gone."""
    gc.freeze()


def write_results(folder: Path) -> Run:
    """Write the tables, the page and the summary of a run, finished or not."""
    from search.page.page import try_to_write
    from search.record.dataframes import load, write_tables
    from search.report.report import write_summary

    run = load(folder)
    write_tables(run)
    try_to_write(lambda: run)
    write_summary(run)
    return run


def finish_run(folder: Path, resume_command: str, interrupted: int | None = None) -> int:
    """Write and print the results; return the exit code. `interrupted`: exit code of the signal that ended the run."""
    from search.report.report import closing_lines

    try:
        run = write_results(folder)
    except Exception as error:  # of any kind: the last copy and the command of --on-end follow
        return report_failure(folder, resume_command, error)
    how = f"\ninterrupted; to go on:\n  {resume_command}" if interrupted else ""
    print(f"{closing_lines(run)}{how}", file=Unbreakable(sys.stdout), flush=True)
    return interrupted or (DONE if run.state.counts()["complete"] else FAILED)


def report_failure(folder: Path, resume_command: str, error: Exception) -> int:
    """Print what happened and how to go on, write the results if possible; return the exit code."""
    with contextlib.suppress(Exception):
        write_results(folder)  # or later: the journal has everything
    code = OUT_OF_DISK if is_out_of_space(error) else FAILED
    if isinstance(error, OSError):
        what = describe_os_error(error)
    else:
        what = f"the run broke off: {type(error).__name__}: {first_line(error)}"
        with contextlib.suppress(OSError):
            text = "".join(traceback.format_exception(error))
            (folder / ERROR_FILE).write_text(text, encoding="utf-8", errors="backslashreplace")
            what += f" (see {folder / ERROR_FILE})"
    how = "free some space, then" if code == OUT_OF_DISK else "to go on"
    if folder.is_dir():
        what += f"\n{how}:\n  {resume_command}"
    print(what, file=sys.stderr, flush=True)
    return code


def abandon(folder: Path, resume_command: str, why: str, leave: Callable[[], int]) -> None:
    """End the process at once, with all results kept, because Ray will not answer any more.

    `leave` does what is left to do when they are written, and returns the exit code.
    """
    keep_garbage()
    with contextlib.suppress(Exception):
        write_results(folder)
    print(f"\n{why}; to go on:\n  {resume_command}", file=sys.stderr, flush=True)
    end_children()  # first: the trials might go on
    os._exit(leave())
