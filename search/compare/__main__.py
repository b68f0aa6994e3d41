"""Two runs or more beside each other: fronts, hypervolume, the rate of each shared configuration, what differs.

    python -m search.compare RUN RUN [RUN ...] [--figure FILE.png]

The runs must have the same objectives; their machines may differ, and then the rates tell the machines apart.
Exit codes: 0 done, 2 bad input.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from search.commandline import answered, opened
from search.compare.comparison import (
    Reading,
    Shared,
    Side,
    compared_metrics,
    differences,
    hypervolumes,
    mean_ratio,
    not_comparable,
    objectives_of,
    other_machines,
    shared,
    sides,
    together,
    wall_time,
)
from search.front.bearing import is_learned
from search.front.objective import Objective
from search.outcome import InputError, Parser
from search.record.history import Trial
from search.report.front_tables import measured
from search.results import Run
from search.text.markdown import WIDTH, Columns, fits, table, tables, wrapped
from search.text.sketch import DOT, Axis, Point, sketch
from search.text.wording import ARROWS, count, listed, metric_label, number, percent, setting, short_settings, spread

FIGURES = (".png", ".svg", ".pdf")
MOST_ROWS = 16  # of a table
LINES = 16  # of the sketch
OTHER = "†"  # marks what is of different machines


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the comparison; the exit code."""
    return answered("search.compare", lambda: _answer(_parser().parse_args(arguments)))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m search.compare", description=(__doc__ or "").split("\n")[0], allow_abbrev=False)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folders of runs, finished or not")
    parser.add_argument("--figure", type=Path, metavar="FILE", help=f"draw the fronts: {', '.join(FIGURES)}")
    return parser


def _answer(options: argparse.Namespace) -> str:
    figure: Path | None = options.figure
    if figure is not None and figure.suffix.lower() not in FIGURES:
        raise InputError(f"--figure {figure}: expected a name that ends in {', '.join(FIGURES)}")
    named = sides([opened(folder) for folder in options.runs])
    text = comparison(named)
    if figure is not None:
        _draw(named, figure)
        text += f"\n\nDrawn: {figure}"
    return text


def _draw(named: Sequence[Side], figure: Path) -> None:
    try:
        from matplotlib.figure import Figure

        from search.plots import plot_fronts
    except ImportError:
        raise InputError("--figure needs matplotlib: pip install 'training-search[plots]'") from None
    drawn = Figure(figsize=(8, 5), layout="constrained")
    plot_fronts({f"{side.letter}: {side.run.name}": side.run for side in named}, drawn.subplots())
    drawn.savefig(figure)


# --- the text ---------------------------------------------------------------------------------------------------------


def comparison(named: Sequence[Side]) -> str:
    """All of it, in Markdown that fits 80 columns where words allow."""
    blocks = ["# " + " and ".join(side.run.name for side in named), *_runs(named), *_warnings(named)]
    blocks += ["## Fronts", *_fronts(named)]
    for metric in compared_metrics(named):
        if not (is_learned(named[0].run.info, metric) and not_comparable(named)):
            blocks += _shared(named, metric)
    return "\n\n".join([*blocks, "## What differs", *_differences(named)])


def _runs(named: Sequence[Side]) -> list[str]:
    """A row a run, with its share of what all fronts together dominate."""
    volumes = hypervolumes(named)
    whole = volumes[0][-1] if volumes else 0.0
    shares = [percent(v / whole) if whole else "–" for v in volumes[0][:-1]] if volumes else ["–"] * len(named)
    columns = {
        "": [side.letter for side in named],
        "run": [_short(side.run) for side in named],
        "complete": [f"{side.run.history.counts()['complete']}" for side in named],
        "front": [count(len(side.run.history.front()), "point") for side in named],
        "hypervolume": shares,
        "took": [wall_time(side.run) for side in named],
    }
    first = {"": columns.pop("")}
    blocks = tables(first, columns)
    if volumes:
        labels = [metric_label(o.metric, _data(named)) for o in objectives_of(named)]
        point = ", ".join(f"{label} {number(value)}" for label, value in zip(labels, volumes[1], strict=True))
        blocks.append(
            wrapped(
                f"Hypervolume: of what the fronts dominate together, {number(whole)} ({' × '.join(labels)}); common "
                f"reference point {point} (the worst that any run compared, and a tenth of the range beyond)."
            )
        )
    return blocks


def _short(run: Run) -> str:
    return run.name if len(run.name) <= 30 else f"{run.name[:29]}…"


def _warnings(named: Sequence[Side]) -> Iterator[str]:
    if reasons := not_comparable(named):
        yield wrapped(f"**Accuracies do not compare**: {'; '.join(reasons)}.")
    if other_machines(named):
        yield wrapped(
            "**Rates are of different machines**: they tell the machines apart, not how good a search was. Accuracies "
            + ("of equal data and epochs would compare." if reasons else "compare: data and epochs are the same.")
        )


def _fronts(named: Sequence[Side]) -> Iterator[str]:
    """The scatter, then the points that no other run beats."""
    objectives = objectives_of(named)
    points = [
        Point(trial.metrics[objectives[1].metric], trial.metrics[objectives[0].metric], mark)
        for side in named
        for trial, mark in _marked(side)
    ]
    if not points:
        yield "No run has a front."
        return
    labels = [_label(named, o) for o in objectives]
    drawn = sketch(points, Axis(labels[1]), Axis(labels[0]), WIDTH, LINES)
    yield "\n".join(["```", *drawn, "```"])
    more = f" Drawn are the first two of {len(objectives)} objectives." if len(objectives) > 2 else ""
    letters = ", ".join(side.letter for side in named)
    yield wrapped(f"{letters}: points of its front, a later letter over an earlier one; {DOT}: dominated.{more}")
    best = together(named)
    parts = [f"{sum(s is side for s, _ in best)} of {side.letter}" for side in named]
    yield wrapped(f"Together: {count(len(best), 'point')} that no point of another run dominates, {listed(parts)}:")
    shown = best[:MOST_ROWS]
    first = {"": [side.letter for side, _ in shown], "trial": [trial.trial_id for _, trial in shown]}
    metrics = {
        label: [measured(trial, o.metric) for _, trial in shown] for label, o in zip(labels, objectives, strict=True)
    }
    varying = named[0].run.history.varying(trial for _, trial in best)
    chosen = {n: [setting(t.config[n]) if n in t.config else "" for _, t in shown] for n in varying}
    yield from tables(first, metrics, chosen)
    if len(best) > MOST_ROWS:
        yield f"and {len(best) - MOST_ROWS} more."
    if any(OTHER in label for label in labels):
        yield f"{OTHER}: of different machines."


def _label(named: Sequence[Side], objective: Objective) -> str:
    """With its goal, and a mark where it is of different machines."""
    mark = "" if is_learned(named[0].run.info, objective.metric) or not other_machines(named) else f" {OTHER}"
    return f"{metric_label(objective.metric, _data(named))} ({ARROWS[objective.goal]}){mark}"


def _marked(side: Side) -> Iterator[tuple[Trial, str]]:
    front = {trial.trial_id for trial in side.run.history.front()}
    for trial in side.run.history.candidates():
        yield trial, side.letter if trial.trial_id in front else DOT


def _shared(named: Sequence[Side], metric: str) -> list[str]:
    """A table of the configurations that several runs measured."""
    rows = shared(named, metric)
    label, learned = metric_label(metric, _data(named)), is_learned(named[0].run.info, metric)
    if not rows:
        what = "trained" if learned else "measured"
        return [f"## {label} of shared configurations", f"No configuration was {what} in two of the runs."]
    shown = rows[:MOST_ROWS]
    columns = {side.letter: [_cell(row.readings.get(side.letter)) for row in shown] for side in named}
    base = named[0].letter
    for side in named[1:]:
        name = f"{side.letter} - {base}" if learned else f"{side.letter} / {base}"
        columns[name] = [_beside(row, side.letter, base, learned) for row in shown]
    names = [n for n in _names(named) if len(rows) == 1 or len({repr(row.config.get(n)) for row in rows}) > 1]
    more = [f"and {len(rows) - MOST_ROWS} more."] if len(rows) > MOST_ROWS else []
    return [
        f"## {label} of shared configurations",
        *_with_settings(shown, names, columns),
        *more,
        *([] if learned else _means(named, rows, label)),
        wrapped(_legend(named, rows, names, learned)),
    ]


def _with_settings(rows: Sequence[Shared], names: Sequence[str], columns: Columns) -> list[str]:
    """The columns beside each configuration in short; where that is too wide, numbered, with a table of settings."""
    short = {"configuration": [short_settings(row.config, names) for row in rows]}
    if fits({**short, **columns}):
        return [table({**short, **columns})]
    chosen = {n: [setting(row.config[n]) if n in row.config else "" for row in rows] for n in names}
    return tables({"no.": [f"{n}" for n in range(1, len(rows) + 1)]}, columns, chosen)


def _names(named: Sequence[Side]) -> list[str]:
    trials = [trial for side in named for trial in side.run.history.trials.values()]
    return list(dict.fromkeys([*named[0].run.history.parameters(), *(name for t in trials for name in t.config)]))


def _cell(reading: Reading | None) -> str:
    return "–" if reading is None else spread(reading.value, reading.half) + "!" * reading.disturbed


def _beside(row: Shared, letter: str, base: str, learned: bool) -> str:
    if not {letter, base} <= row.readings.keys():
        return "–"
    if learned:
        return f"{row.readings[letter].value - row.readings[base].value:+.4f}"
    ratio, half = row.ratio(letter, base)
    tie = " ~" if half is not None and abs(ratio - 1) <= half else ""
    return f"{ratio:.2f}" + ("" if half is None else " ± ?" if half >= ratio else f" ± {half:.2f}") + tie


def _means(named: Sequence[Side], rows: Sequence[Shared], label: str) -> Iterator[str]:
    """One line a run: how many times the rate of the first it has."""
    base = named[0]
    for side in named[1:]:
        if found := mean_ratio(rows, side.letter, base.letter):
            mean, low, high, size = found
            over = f"over {count(size, 'shared configuration')}, {low:.2f} to {high:.2f}" if size > 1 else "over one"
            yield wrapped(f"**{side.letter} has {mean:.2f} times the {label} of {base.letter}** ({over}).")


def _legend(named: Sequence[Side], rows: Sequence[Shared], names: Sequence[str], learned: bool) -> str:
    readings = [reading for row in rows for reading in row.readings.values()]
    said = ["±: half of a 95% interval."] * any(reading.half for reading in readings)
    if not learned:
        said.append("Settings that bear on accuracy alone may differ.")
        ratios = [row.ratio(s.letter, named[0].letter) for row in rows for s in named[1:] if _both(row, s, named[0])]
        said += ["~: not told apart."] * any(half is not None and abs(ratio - 1) <= half for ratio, half in ratios)
    said += ["!: measured while something else took the cores, so perhaps too low."] * any(
        reading.disturbed for reading in readings
    )
    same = {n: v for n, v in rows[0].config.items() if n not in names}
    if same and len(rows) > 1:
        said.append(f"The same for all: {short_settings(same, same)}.")
    return " ".join(said)


def _both(row: Shared, one: Side, other: Side) -> bool:
    return {one.letter, other.letter} <= row.readings.keys()


def _differences(named: Sequence[Side]) -> Iterator[str]:
    different, same = differences(named)
    lines = []
    for name, values in different.items():
        lines.append(f"- {name}")
        lines += [wrapped(f"  - {side.letter}: {value}", "    ") for side, value in zip(named, values, strict=True)]
    yield "\n".join(lines) if lines else "Nothing that was recorded."
    yield wrapped(f"The same: {', '.join(same)}.")


def _data(named: Sequence[Side]) -> dict[str, str]:
    """For labels: generated where any of them is."""
    data = [side.run.info["data"] for side in named]
    return next((each for each in data if each["name"] == "generated"), data[0])


if __name__ == "__main__":
    sys.exit(main())
