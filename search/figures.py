"""The figures of a run as PNG and SVG files: front, curves, parallel coordinates, importance, stage times.

    python -m search.figures RUN [--to DIR]

They are not drawn when a run ends, for that would take some seconds more. Exit codes: 0 done, 1 nothing to draw, 2 bad
input.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from search.commandline import UnmetError, answered, opened
from search.outcome import InputError, Parser
from search.plots import (
    NothingToDrawError,
    plot_curves,
    plot_front,
    plot_importance,
    plot_parallel,
    plot_stages,
)
from search.results import Run

PLOTS = {
    "front": plot_front,
    "curves": plot_curves,
    "parallel": plot_parallel,
    "importance": plot_importance,
    "stages": plot_stages,
}
SIZE = (8.0, 5.0)  # inches
DOTS_PER_INCH = 150


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the figures and say where; the exit code."""
    return answered("search.figures", lambda: _answer(_parser().parse_args(arguments)))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m search.figures", description=(__doc__ or "").split("\n")[0], allow_abbrev=False)
    parser.add_argument("run", type=Path, metavar="RUN", help="a run's folder, finished or not")
    parser.add_argument("--to", type=Path, metavar="DIR", help="default: RUN/figures")
    return parser


def _answer(options: argparse.Namespace) -> str:
    run = opened(options.run)
    folder: Path = options.to or options.run / "figures"
    written, left_out = write_figures(run, folder)
    if not written:
        raise UnmetError(f"{run.name}: nothing to draw: {'; '.join(left_out)}")
    return "\n".join([*map(str, written), *(f"left out: {line}" for line in left_out)])


def write_figures(run: Run, folder: Path) -> tuple[list[Path], list[str]]:
    """Write each figure as PNG and as SVG; the files, and a line for each figure that the run has nothing for.

    Raises:
        InputError: matplotlib is not there.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("figures need matplotlib: pip install 'training-search[plots]'") from None
    written, left_out = list[Path](), list[str]()
    for name, plot in PLOTS.items():
        figure = Figure(figsize=SIZE, layout="constrained")
        try:
            plot(run, figure.subplots())
        except NothingToDrawError as error:
            left_out.append(f"{name}: {error}")
            continue
        folder.mkdir(parents=True, exist_ok=True)
        for suffix in ("png", "svg"):
            path = folder / f"{name}.{suffix}"
            figure.savefig(path, dpi=DOTS_PER_INCH, metadata={"Date": None} if suffix == "svg" else None)
            written.append(path)
    return written, left_out


if __name__ == "__main__":
    sys.exit(main())
