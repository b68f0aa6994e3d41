"""List the runs in a folder: state, owner, front and cost of each.

    python -m search.runs results
    python -m search.runs /shared/results --where state=running,space=throughput
    python -m search.runs /shared/results --html /shared/results/index.html --every 30
    python -m search.runs results --json

The page links to the report of each run, loads nothing, and can be served from any folder or bucket beside the runs.
Exit codes: 0 done, 1 the page cannot be written, 2 bad input, 130 interrupted.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from search.commandline import command_parser, print_output, run_command
from search.exit_codes import InputError
from search.record.journal import FILE_NAME as JOURNAL
from search.runs.listed_run import WORDS, ListedRun, list_runs
from search.text.durations import format_duration
from search.text.markdown import format_tables, wrap
from search.text.metrics import ARROWS
from search.text.numbers import format_number, plural, unknown_intervals
from search.text.shorten import shorten
from trainables.setting_check import did_you_mean

MAX_NAME = 34  # columns of the terminal
MOST_SHOWN = 100
MOST_SECONDS = 86_400  # between two pages


def main(arguments: Sequence[str] | None = None, sleep: Callable[[float], None] = time.sleep) -> int:
    """Print the list and return the exit code."""
    return run_command("search.runs", lambda: _answer(arguments, sleep))


def _answer(arguments: Sequence[str] | None, sleep: Callable[[float], None]) -> str:
    parser = command_parser("search.runs", __doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("results"), help="of the runs (default: results)")
    of = ", ".join(WORDS)
    parser.add_argument("--where", default="", metavar="NAME=TEXT[,...]", help=f"runs with this text in: {of}")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--html", type=Path, metavar="FILE", help="write a page, which links to the reports")
    parser.add_argument("--every", type=float, metavar="SECONDS", help="with --html: write it again, until Ctrl-C")
    options = parser.parse_args(arguments)
    wanted = conditions(options.where)
    if options.every is not None and not options.html:
        raise InputError(f"--every {options.every:g}: expected --html FILE")
    if options.every is not None and not 1 <= options.every <= MOST_SECONDS:
        raise InputError(f"--every {options.every:g}: expected 1 to {MOST_SECONDS:,} seconds")
    if options.html and not options.html.parent.is_dir():
        raise InputError(f"--html {options.html}: there is no folder {options.html.parent}")
    if not options.folder.is_dir():
        raise InputError(f"{options.folder}: no such folder; expected the one that --results names")
    if (options.folder / JOURNAL).is_file():
        raise InputError(f"{options.folder}: is a run itself; give the folder that it lies in")
    every: list[ListedRun] = []
    while True:
        every = list_runs(options.folder, every)
        runs = [run for run in every if meets(run, wanted)]
        if options.json:
            return json.dumps([run.to_mapping() for run in runs], indent=2)
        if not options.html:
            return as_text(runs) if runs else f"{options.folder}: {_none_of(len(every), options.where)}"
        from search.runs.index_page import write_index

        write_index(runs, options.html, options.every)
        if options.every is None:
            return f"{plural(len(runs), 'run')}: {options.html}"
        print_output(f"{plural(len(runs), 'run')}: {options.html} (Ctrl-C to stop)")
        sleep(options.every)


def conditions(text: str) -> dict[str, str]:
    """Return the wanted text by name.

    Raises:
        InputError: it is not NAME=TEXT, or there is nothing with that name.
    """
    wanted = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals or name not in WORDS:
            raise InputError(f"--where {part}: expected NAME=TEXT, as in state=running{did_you_mean(name, WORDS)}")
        wanted[name] = value
    return wanted


def meets(run: ListedRun, wanted: Mapping[str, str]) -> bool:
    """Return whether the run has each wanted text, in upper or lower case."""
    return all(text.lower() in getattr(run, name).lower() for name, text in wanted.items())


def _none_of(number: int, where: str) -> str:
    return f"no run with {where} among {plural(number, 'run')}" if number else "no runs"


def as_text(runs: Sequence[ListedRun]) -> str:
    """Return tables in at most 80 columns where words allow, and a line for each run that cannot be read."""
    readable = [run for run in runs if run.state != "unreadable"]
    lines = [wrap(f"{run.folder}: {run.reason}", "  ") for run in runs if run.state == "unreadable"]
    shown = readable[:MOST_SHOWN]
    tables = format_tables({"run": [shorten(run.name, MAX_NAME) for run in shown]}, _progress(shown), _results(shown))
    blocks = tables if shown else []
    blocks += unknown_intervals("\n".join(blocks))
    if len(readable) > len(shown):
        blocks.append(f"{len(readable) - len(shown)} older ones are left out; --json and --html have all.")
    if lines:
        blocks.append("\n".join([f"Cannot be read: {len(lines)}", *lines]))
    return "\n\n".join(blocks)


def _progress(runs: Sequence[ListedRun]) -> dict[str, list[str]]:
    gpu_hours = [format_number(run.gpu_hours) if run.num_gpus else "–" for run in runs]
    columns = {
        "state": [run.state for run in runs],
        "began (UTC)": [run.began_at for run in runs],
        "took": [format_duration(run.seconds) for run in runs],
        "GPU hours": gpu_hours,
        "complete": [str(run.trials.get("complete", 0)) for run in runs],
    }
    return {name: cells for name, cells in columns.items() if {"–"} != set(cells)}


def _results(runs: Sequence[ListedRun]) -> dict[str, list[str]]:
    metrics = dict.fromkeys((best.metric, best.goal) for run in runs for best in run.best)
    of = [{(best.metric, best.goal): best.text for best in run.best} for run in runs]
    return {
        "front": [plural(len(run.front), "point") for run in runs],
        **{f"{metric} {ARROWS[goal]}": [best.get((metric, goal), "–") for best in of] for metric, goal in metrics},
        "space": [run.space or "–" for run in runs],
        "owner": [run.owner for run in runs],
        "machine": [run.machine for run in runs],
    }


if __name__ == "__main__":
    sys.exit(main())
