"""What the machine did while the run went on, as far as the journal has it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from search.page.axes import axis
from search.page.chart import chart, figure, lines
from search.page.markup import Html, joined, tag
from search.record.history import History

# metric -> what people call it. A measurement tells its mean over the trial so far.
WATCHED = {
    "cpu_utilization": "CPU, of the trial's cores",
    "machine_cpu_utilization": "CPU, of all cores, by everybody",
    "gpu_utilization": "GPU in use",
    "gpu_memory_gib": "GPU memory, by everybody",
    "resident_gib": "memory of the trial's processes",
    "gpu_power_watts": "GPU power",
    "gpu_clock_mhz": "GPU clock",
    "gpu_throttled_fraction": "GPU slowed by heat or power",
    "images_per_joule": "images per joule",
}
MOST_STRETCHES = 1_000  # in one chart


@dataclass(frozen=True)
class Stretch:
    """From one measurement of a trial to the next, in minutes since the start of the run, and the mean that it told."""

    begin: float
    end: float
    value: float


def telemetry(history: History) -> Html:
    """A chart for each of the `WATCHED` that was measured, and the names of the others."""
    stretches = _stretches(history)
    units: Mapping[str, str] = history.info.get("metrics", {})
    charts = [_chart(metric, stretches[metric], units.get(metric, "")) for metric in WATCHED if metric in stretches]
    missing = [words for metric, words in WATCHED.items() if metric not in stretches]
    words = f"Not measured: {'; '.join(missing)}." if missing else None
    return joined(
        tag("p", "A stroke is an epoch of a trial, or a probe, at the mean over the trial up to its end.")
        if charts
        else None,
        tag("div", *charts, class_="small-multiples") if charts else None,
        tag("p", words, class_="note") if words else None,
    )


def _stretches(history: History) -> dict[str, list[Stretch]]:
    """By metric, in the order of time."""
    began, found = history.info["time"], defaultdict(list)
    for trial in history.trials.values():
        before = trial.started_at
        for epoch in sorted(trial.curve):
            event = trial.curve[epoch]
            for metric in WATCHED.keys() & event["metrics"].keys():
                if math.isfinite(value := event["metrics"][metric]):
                    found[metric].append(Stretch((before - began) / 60, (event["time"] - began) / 60, value))
            before = event["time"]
    return {metric: sorted(stretches, key=lambda s: s.end) for metric, stretches in found.items()}


def _thinned(stretches: Sequence[Stretch]) -> list[Stretch]:
    """Neighbours as one, with their mean, so that at most `MOST_STRETCHES` are left."""
    size = math.ceil(len(stretches) / MOST_STRETCHES)
    groups = [stretches[i : i + size] for i in range(0, len(stretches), size)]
    return [
        Stretch(min(s.begin for s in group), group[-1].end, sum(s.value for s in group) / len(group))
        for group in groups
    ]


def _chart(metric: str, stretches: Sequence[Stretch], unit: str) -> Html:
    shown = _thinned(stretches)
    x = axis([0.0, *(s.end for s in shown)])
    y = axis([0.0, *([1.0] if unit == "fraction" else []), *(s.value for s in shown)])
    data = "".join(
        f"M{begin:.4g} {100 - y.percent(s.value):.4g}H{max(x.percent(s.end), begin + 0.4):.4g}"
        for s in shown
        for begin in [x.percent(s.begin)]
    )
    content = chart(lines([tag("path", d=data, class_="behind strong")]), x, y, ("minutes", unit), metric, "small")
    note = f"Means of {math.ceil(len(stretches) / MOST_STRETCHES)} in a row." if len(shown) < len(stretches) else ""
    return figure(WATCHED[metric], content, note=note)
