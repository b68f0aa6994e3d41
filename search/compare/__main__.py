"""Compare two or more runs: fronts, hypervolume, shared configurations, and differences in conditions.

    python -m search.compare RUN RUN [RUN ...] [--figure FILE.png] [--settle [--minutes 2]] [--fail-if CONDITION]

The runs must have the same objectives. If their machines differ, the rates compare the machines, not the searches.
With --settle, the trainings of the runs take turns in the configurations that they share, on this machine: after a
change of a training file or of the data, it says how much faster or slower that made each of them.
With --fail-if "images_per_second<0.95" the exit code is 1 if a later run surely has less than 0.95 times the rate of
the first, in the mean of the configurations that both measured; "val_accuracy<-0.01": if its accuracy is surely lower
by more than 0.01; "hypervolume<0.98": if its front has less than 0.98 times the hypervolume, which has no interval.
Exit codes: 0 done, 1 a condition of --fail-if holds, 2 bad input, 130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

from search.commandline import command_parser, load_run, run_command
from search.compare.comparison import Side, shared, sides
from search.compare.fail_if import EXAMPLE, HYPERVOLUME, Outcome, outcomes, parsed
from search.compare.settled import Settled, settle, trainings
from search.compare.tables import comparison, comparison_in_turns
from search.exit_codes import DONE, FAILED, InputError
from search.record.disk import describe_os_error
from search.space.machine import describe_machine
from search.text.markdown import wrap

FIGURES = (".png", ".svg", ".pdf")
DEFAULT_MINUTES = 2.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the comparison and return the exit code."""
    failed: list[Outcome] = []
    code = run_command("search.compare", lambda: _answer(arguments, failed))
    return FAILED if code == DONE and failed else code


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line, checked."""
    parser = command_parser("search.compare", __doc__)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folders of runs, finished or not")
    parser.add_argument("--figure", type=Path, metavar="FILE", help=f"draw the fronts: {', '.join(FIGURES)}")
    parser.add_argument("--settle", action="store_true", help="measure shared configurations again, in turns")
    parser.add_argument("--minutes", type=float, metavar="N", help="for --settle (default 2)")
    parser.add_argument(
        "--fail-if",
        action="append",
        default=[],
        metavar="CONDITION",
        help=f"exit code 1 if a run surely has this against the first: {EXAMPLE}",
    )
    options: argparse.Namespace = parser.parse_args(arguments)
    if options.minutes is not None and not options.minutes > 0:
        raise InputError(f"--minutes {options.minutes:g}: expected more than 0")
    if options.minutes is not None and not options.settle:
        raise InputError("--minutes: belongs to --settle")
    figure: Path | None = options.figure
    if figure is not None and figure.suffix.lower() not in FIGURES:
        raise InputError(f"--figure {figure}: expected a name that ends in {', '.join(FIGURES)}")
    if figure is not None and not figure.parent.is_dir():
        raise InputError(f"--figure {figure}: there is no folder {figure.parent}")
    if figure is not None and importlib.util.find_spec("matplotlib") is None:
        raise InputError("--figure needs matplotlib: pip install 'training-search[plots]'")
    return options


def _answer(arguments: Sequence[str] | None, failed: list[Outcome]) -> str:
    """Return the comparison as text; conditions that hold are added to `failed`."""
    options = _options(arguments)
    named = sides([load_run(folder) for folder in options.runs])
    conditions = [parsed(text, named) for text in options.fail_if]
    each_training = trainings(named, describe_machine()) if options.settle else []
    text = comparison(named)
    rate, found = named[0].run.state.rate_metric, list[Settled]()
    if options.settle:
        letters = [side.letter for side in named]
        rows = [row for row in shared(named, rate) if letters[0] in row.readings]
        found = settle(rows, letters, each_training, 60 * (options.minutes or DEFAULT_MINUTES))
        text += "\n\n" + "\n\n".join(comparison_in_turns(named, len(rows), found))
    if conditions:
        ratios = {
            side.letter: [each.ratios[side.letter] for each in found if side.letter in each.ratios] for side in named
        }
        told = list[Outcome]()
        for one in conditions:
            rows = [] if one.metric == HYPERVOLUME else shared(named, one.metric)
            told += outcomes(one, named, rows, ratios if one.metric == rate else {})
        failed += [each for each in told if each.failed]
        text += "\n\n## Conditions\n\n" + "\n".join(wrap(f"- {each.text}", "  ") for each in told)
    if options.figure is not None:
        text += f"\n\n{_drawn(named, options.figure)}"
    return text


def _drawn(named: Sequence[Side], path: Path) -> str:
    """Draw the fronts; return where they are, or why that was not possible: what was measured is told in any case."""
    from matplotlib.figure import Figure

    from search.plots import NothingToDrawError, plot_fronts

    drawn = Figure(figsize=(8, 5), layout="constrained")
    try:
        plot_fronts({f"{side.letter}: {side.run.name}": side.run for side in named}, drawn.subplots())
        drawn.savefig(path)
    except NothingToDrawError as error:
        return wrap(f"Not drawn: {error}.")
    except OSError as error:
        return wrap(f"Not drawn: {describe_os_error(error)}")
    return f"Drawn: {path}"


if __name__ == "__main__":
    sys.exit(main())
