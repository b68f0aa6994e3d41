"""Charts of the machine's load during the run, from the measurements in the journal."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from search.page.axes import axis
from search.page.render import render
from search.record.dataframes import Run

# Title by metric. A measurement has the mean over the trial so far.
METRICS = {
    "cpu_utilization": "CPU, the trial's cores",
    "machine_cpu_utilization": "CPU, all cores, all processes",
    "gpu_utilization": "GPU utilization",
    "gpu_memory_gib": "GPU memory, all processes",
    "resident_gib": "memory of the trial's processes",
    "gpu_power_watts": "GPU power",
    "gpu_clock_mhz": "GPU clock",
    "gpu_throttled_fraction": "GPU throttled by heat or power",
}
MAX_SEGMENTS = 1_000  # in one chart
MIN_WIDTH = 0.4  # of a segment, in percent of the chart, so that it can be seen


class Segment(NamedTuple):
    """Mean value between two measurements of a trial, in minutes since the start of the run."""

    begin: float
    end: float
    value: float


def machine_load(run: Run) -> Markup:
    """Render a chart for each of the metrics that was measured, and the titles of the others."""
    unit = run.state.rate_metric.removesuffix("_per_second")
    titles = {**METRICS, f"{unit}_per_joule": f"{unit} per joule"}
    began, found = run.info.time, defaultdict[str, list[Segment]](list)
    for trial in run.state.trials.values():
        before = trial.started_at
        for epoch in sorted(trial.curve):
            event = trial.curve[epoch]
            for metric in titles.keys() & event.metrics.keys():
                if math.isfinite(value := event.metrics[metric]):
                    found[metric].append(Segment((before - began) / 60, (event.time - began) / 60, value))
            before = event.time
    charts = [_chart(m, title, found[m], run.state.unit(m)) for m, title in titles.items() if m in found]
    return render("machine_load.html", charts=charts, missing=[titles[m] for m in titles if m not in found])


def _chart(metric: str, title: str, segments: Sequence[Segment], unit: str) -> dict[str, Any]:
    """Return the template's values; consecutive segments are averaged, so that at most `MAX_SEGMENTS` are left."""
    segments = sorted(segments, key=lambda s: s.end)
    size = math.ceil(len(segments) / MAX_SEGMENTS)
    groups = [segments[i : i + size] for i in range(0, len(segments), size)]
    shown = [Segment(min(s.begin for s in g), g[-1].end, sum(s.value for s in g) / len(g)) for g in groups]
    x = axis([0.0, *(s.end for s in shown)])
    y = axis([0.0, *([1.0] if unit == "fraction" else []), *(s.value for s in shown)])
    data = ""
    for segment in shown:
        begin = x.position(segment.begin)
        end = max(x.position(segment.end), begin + MIN_WIDTH)
        data += f"M{begin:.4g} {100 - y.position(segment.value):.4g}H{end:.4g}"
    return {
        "title": title,
        "label": metric,
        "note": f"Means of {size} consecutive segments." if size > 1 else "",
        "axes": {"x": x, "y": y, "x_title": "minutes", "y_title": unit},
        "paths": [{"d": data, "class": "strong", "trial_id": None}],
    }
