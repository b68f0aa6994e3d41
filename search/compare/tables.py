"""Comparison of runs as Markdown: their fronts, the configurations that they share, and what differs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from search.compare.comparison import (
    Reading,
    Shared,
    Side,
    compared_metrics,
    differences,
    hypervolumes,
    mean_ratio,
    not_comparable,
    other_machines,
    shared,
    together,
)
from search.compare.settled import Settled
from search.front.intervals import least_value
from search.front.roles import metric_label
from search.front.targets import is_duration
from search.text.configurations import format_setting, format_settings
from search.text.durations import format_duration
from search.text.markdown import WIDTH, fits, format_table, format_tables, wrap
from search.text.metrics import ARROWS, CONTENDED_LEGEND, CONTENDED_MARK
from search.text.numbers import (
    PLUS_MINUS,
    format_number,
    format_percent,
    format_ratio,
    join_words,
    plural,
    plus_minus,
    unknown_intervals,
)
from search.text.scatter_plot import DOT, Axis, Point, scatter_plot
from search.text.shorten import shorten

MOST_ROWS = 16  # of a table
LINES = 16  # of the sketch
MOST_OF_A_NAME = 30  # characters
OTHER = "†"  # marks what is of different machines


def comparison(named: Sequence[Side]) -> str:
    """Return the comparison as Markdown in at most 80 columns where the words allow."""
    title = "# " + " and ".join(side.run.name for side in named)
    blocks = [title if len(title) <= WIDTH else f"# Comparison of {len(named)} runs", *_runs(named)]
    if reasons := not_comparable(named):
        blocks.append(wrap(f"**Accuracies do not compare**: {'; '.join(reasons)}."))
    if other_machines(named):
        accuracies = "would compare with equal data and epochs" if reasons else "compare: data and epochs are equal"
        note = "**The rates are from different machines**: they compare the machines, not the searches. Accuracies"
        blocks.append(wrap(f"{note} {accuracies}."))
    blocks += ["## Fronts", *_fronts(named)]
    for metric in compared_metrics(named):
        if not (named[0].run.info.is_learned(metric) and reasons):
            blocks += _shared(named, metric)
    different, same = differences(named)
    lines = []
    for name, values in different.items():
        lines.append(f"- {name}")
        lines += [wrap(f"  - {side.letter}: {value}", "    ") for side, value in zip(named, values, strict=True)]
    listed = "\n".join(lines) or "None of the recorded conditions."
    return "\n\n".join([*blocks, "## What differs", listed, wrap(f"The same: {', '.join(same)}.")])


def comparison_in_turns(named: Sequence[Side], num_shared: int, found: Sequence[Settled]) -> Iterator[str]:
    """Table of the configurations shared with the first run that had turns."""
    state, letters = named[0].run.state, [side.letter for side in named]
    yield f"## {metric_label(state.rate_metric, _data(named))} of shared configurations, in turns"
    if not num_shared:
        yield f"No configuration of {letters[0]} was measured in another run."
        return
    names = [n for n in state.parameters() if len({repr(each.config.get(n)) for each in found}) > 1]
    columns = {
        "configuration": [format_settings(each.config, names) or "the only one" for each in found],
        "rounds": [f"{each.rounds}" for each in found],
        **{f"{side.letter} / {letters[0]}": [_in_words(each, side.letter) for each in found] for side in named[1:]},
    }
    tables = format_tables({}, columns)
    yield from tables
    decided = [ratio.is_decided for each in found for ratio in each.ratios.values()]
    notes = []
    if decided:
        number = plural(len(decided), "order")
        notes.append(f"{sum(decided)} of {number} decided. In parentheses: the 95% interval of the ratio.")
    if num_shared > len(found):
        notes.append(f"{num_shared - len(found)} more had no time; --minutes gives more.")
    notes += dict.fromkeys(f"Not measured: {each.reason}." for each in found if each.reason)
    notes += unknown_intervals("\n".join(tables))
    yield wrap(" ".join(notes))


def _runs(named: Sequence[Side]) -> list[str]:
    """Table with one row per run, its hypervolume as a share of the common front's."""
    volumes = None if not_comparable(named) else hypervolumes(named)
    whole = volumes[0][-1] if volumes else 0.0
    shares = [format_percent(v / whole) if whole else "–" for v in volumes[0][:-1]] if volumes else ["–"] * len(named)
    columns = {
        "run": [shorten(side.run.name, MOST_OF_A_NAME) for side in named],
        "complete": [f"{side.run.state.counts()['complete']}" for side in named],
        "front": [plural(len(side.run.state.front()), "point") for side in named],
        "hypervolume": shares,
        "took": [format_duration(side.run.state.clock.active_seconds()) for side in named],
    }
    blocks = format_tables({"": [side.letter for side in named]}, columns)
    if volumes:
        labels = [metric_label(o.metric, _data(named)) for o in named[0].run.state.objectives]
        point = ", ".join(f"{label} {format_number(value)}" for label, value in zip(labels, volumes[1], strict=True))
        share = f"Hypervolume: share of the common front's, {format_number(whole)} ({' × '.join(labels)})."
        worst = "the worst value on any front, moved outwards by a tenth of the range; values far off count less"
        blocks.append(wrap(f"{share} Its reference point is {point}: {worst}."))
    return blocks


def _fronts(named: Sequence[Side]) -> Iterator[str]:
    """Scatter plot of all candidates, then the table of the common front."""
    objectives = named[0].run.state.objectives
    points = [
        Point(t.metrics[objectives[1].metric], t.metrics[objectives[0].metric], side.letter if t in front else DOT)
        for side in named
        for front in [side.run.state.front()]
        for t in side.run.state.candidates()
    ]
    if not points:
        yield "No run has a front."
        return
    labels = []
    for o in objectives:
        timed = is_duration(o.metric) or not named[0].run.info.is_learned(o.metric)
        differs = other_machines(named) and timed
        labels.append(f"{metric_label(o.metric, _data(named))} ({ARROWS[o.goal]})" + f" {OTHER}" * differs)
    drawn = scatter_plot(points, Axis(labels[1]), Axis(labels[0]), WIDTH, LINES)
    yield "\n".join(["```", *drawn, "```"])
    more = f" The plot shows the first two of {len(objectives)} objectives." if len(objectives) > 2 else ""
    letters = ", ".join(side.letter for side in named)
    yield wrap(f"{letters}: points of that run's front, later letters on top; {DOT}: dominated.{more}")
    best = together(named)
    parts = [f"{sum(s is side for s, _ in best)} of {side.letter}" for side in named]
    yield wrap(f"Common front: {plural(len(best), 'point')}, {join_words(parts)}:")
    shown = best[:MOST_ROWS]
    first = {"": [side.letter for side, _ in shown], "trial": [trial.trial_id for _, trial in shown]}
    metrics = {
        label: [side.run.state.format_metric(trial, o.metric) for side, trial in shown]
        for label, o in zip(labels, objectives, strict=True)
    }
    varying = named[0].run.state.varying_parameters(trial for _, trial in best)
    chosen = {n: [format_setting(t.config[n]) if n in t.config else "" for _, t in shown] for n in varying}
    yield from format_tables(first, metrics, chosen)
    if len(best) > MOST_ROWS:
        yield f"and {len(best) - MOST_ROWS} more."
    if any(OTHER in label for label in labels):
        yield f"{OTHER}: from different machines."


def _shared(named: Sequence[Side], metric: str) -> list[str]:
    """Table of the configurations that several runs measured."""
    rows = shared(named, metric)
    label, learned = metric_label(metric, _data(named)), named[0].run.info.is_learned(metric)
    if not rows:
        what = "trained" if learned else "measured"
        return [f"## {label} of shared configurations", f"No configuration was {what} in two runs."]
    shown = rows[:MOST_ROWS]
    columns = {side.letter: [_cell(row.readings.get(side.letter), metric) for row in shown] for side in named}
    base = named[0].letter
    for side in named[1:]:
        columns[f"{side.letter} {'-' if learned else '/'} {base}"] = [
            _difference(row, side.letter, base, learned) for row in shown
        ]
    trials = [trial for side in named for trial in side.run.state.trials.values()]
    every = named[0].run.state.setting_names(trials)
    names = [n for n in every if len(rows) == 1 or len({repr(row.config.get(n)) for row in rows}) > 1]
    more = [f"and {len(rows) - MOST_ROWS} more."] if len(rows) > MOST_ROWS else []
    means = []
    for side in named[1:]:
        if not learned and (found := mean_ratio(rows, side.letter, base)):
            mean, low, high, size = found
            over, times = f"over {plural(size, 'shared configuration')}", f"{mean:.2f}"
            if size > 1:
                over += f"; single ones: {low:.2f} to {high:.2f}"
            else:  # the ratio itself, with its interval
                only = next(row for row in rows if {side.letter, base} <= row.readings.keys())
                times = _difference(only, side.letter, base, learned)
            means.append(wrap(f"**{side.letter} reaches {times} times the {label} of {base}** ({over})."))
    short = {"configuration": [format_settings(row.config, names) for row in shown]}
    if fits({**short, **columns}):
        tables = [format_table({**short, **columns})]
    else:  # numbered rows and a second table of settings
        chosen = {n: [format_setting(row.config[n]) if n in row.config else "" for row in shown] for n in names}
        tables = format_tables({"no.": [f"{n}" for n in range(1, len(shown) + 1)]}, columns, chosen)
    legend = " ".join([_legend(named, shown, names, learned), *unknown_intervals("\n".join(tables))])
    return [f"## {label} of shared configurations", *tables, *more, *means, wrap(legend)]


def _cell(reading: Reading | None, metric: str) -> str:
    if reading is None:
        return "–"
    return plus_minus(reading.value, reading.half, least_value(metric)) + CONTENDED_MARK * reading.contended


def _difference(row: Shared, letter: str, base: str, learned: bool) -> str:
    if not {letter, base} <= row.readings.keys():
        return "–"
    if learned:
        return f"{row.readings[letter].value - row.readings[base].value:+.4f}"
    ratio, half = row.ratio(letter, base)
    if math.isnan(ratio):
        return "–"
    tie = " ~" if _is_tie(ratio, half) else ""
    return f"{ratio:.2f}" + ("" if half is None else " ± ?" if half >= ratio else f" ± {half:.2f}") + tie


def _is_tie(ratio: float, half: float | None) -> bool:
    """Return whether nothing says that a ratio is not 1: its interval has 1 in it, or is not known."""
    return half is not None and abs(ratio - 1) <= half


def _legend(named: Sequence[Side], rows: Sequence[Shared], names: Sequence[str], learned: bool) -> str:
    readings = [reading for row in rows for reading in row.readings.values()]
    notes = [PLUS_MINUS] if any(reading.half for reading in readings) else []
    if not learned:
        notes.append("Settings that affect accuracy alone may differ.")
        base = named[0].letter
        ratios = [row.ratio(s.letter, base) for row in rows for s in named[1:] if {s.letter, base} <= {*row.readings}]
        if any(_is_tie(ratio, half) for ratio, half in ratios):
            notes.append("~: no significant difference.")
    if any(reading.contended for reading in readings):
        notes.append(CONTENDED_LEGEND)
    same = {n: v for n, v in rows[0].config.items() if n not in names}
    if same and len(rows) > 1:
        notes.append(f"The same for all: {format_settings(same, same)}.")
    return " ".join(notes)


def _in_words(each: Settled, letter: str) -> str:
    ratio = each.ratios.get(letter)
    if ratio is None:
        return "not measured"
    return f"{format_ratio(*ratio.ratio)}{', a tie' if ratio.is_tie else '' if ratio.is_decided else ', not decided'}"


def _data(named: Sequence[Side]) -> str:
    """Name of the data for labels: generated if any run used the generated data."""
    names = [side.run.info.data.name for side in named]
    return "generated" if "generated" in names else names[0]
