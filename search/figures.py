"""Write the figures of a run as PNG and SVG: front, curves, parallel coordinates, importance, stage times.

    python -m search.figures RUN [--to DIR]

A run does not draw them at its end, because that takes seconds. Exit codes: 0 done, 1 nothing to draw, 2 bad input.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from search import plots
from search.commandline import NoResultError, load_run, run_command, run_parser
from search.exit_codes import InputError
from search.text.markdown import wrap

PLOTS = {
    "front": plots.plot_front,
    "curves": plots.plot_curves,
    "parallel": plots.plot_parallel,
    "importance": plots.plot_importance,
    "stages": plots.plot_stages,
}
SIZE = (8.0, 5.0)  # inches
DOTS_PER_INCH = 150


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the figures, print their paths and return the exit code."""
    return run_command("search.figures", lambda: _answer(arguments))


def _answer(arguments: Sequence[str] | None) -> str:
    parser = run_parser("search.figures", __doc__)
    parser.add_argument("--to", type=Path, metavar="DIR", help="default: RUN/figures")
    options = parser.parse_args(arguments)
    run = load_run(options.run)
    folder: Path = options.to or options.run / "figures"
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--to {folder}: is a file; expected a folder, or a new name")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("figures need matplotlib: pip install 'training-search[plots]'") from None
    written, left_out = list[Path](), list[str]()
    for name, plot in PLOTS.items():
        figure = Figure(figsize=SIZE, layout="constrained")
        try:
            plot(run, figure.subplots())
        except plots.NothingToDrawError as error:
            left_out.append(f"{name}: {error}")
            continue
        folder.mkdir(parents=True, exist_ok=True)
        for suffix in ("png", "svg"):
            path = folder / f"{name}.{suffix}"
            figure.savefig(path, dpi=DOTS_PER_INCH, metadata={"Date": None} if suffix == "svg" else None)
            written.append(path)
    if not written:
        raise NoResultError(f"{run.name}: nothing to draw: {'; '.join(left_out)}")
    return "\n".join([*map(str, written), *(wrap(f"left out: {line}", "  ") for line in left_out)])


if __name__ == "__main__":
    sys.exit(main())
