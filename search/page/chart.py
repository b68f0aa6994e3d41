"""Parts that the charts share: axes of metrics, their titles and the data of SVG paths."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from search.front.objective import Objective
from search.page.axes import Axis, axis
from search.record.dataframes import Run
from search.text.metrics import ARROWS, metric_label

LOG_UNITS = ("/s", "/J")  # rates are compared by ratios
CROWD = 200  # lines in one chart above which they are drawn faintly


def unit_of(run: Run, metric: str) -> str:
    """Unit of a metric; empty: none is known."""
    return str(run.info.metrics.get(metric, ""))


def metric_axis(values: Sequence[float], unit: str) -> Axis:
    """Return an axis for values of a metric; logarithmic for rates."""
    return axis(values, log=is_log(values, unit))


def is_log(values: Iterable[float], unit: str) -> bool:
    """Return whether the unit is that of a rate and all values have a logarithm."""
    return unit.endswith(LOG_UNITS) and min((v for v in values if math.isfinite(v)), default=0.0) > 0


def metric_title(run: Run, objective: Objective, of: Axis) -> str:
    """Title of an objective's axis: `images_per_second ↑ (images/s, log scale)`."""
    notes = ", ".join(filter(None, [unit_of(run, objective.metric), "log scale" if of.log else ""]))
    return f"{metric_label(objective.metric, run.info.data.name)} {ARROWS[objective.goal]}" + (
        f" ({notes})" if notes else ""
    )


def path(points: Iterable[tuple[float, float]]) -> str:
    """Data of a path through points in percent of the chart, from its top left corner."""
    return "M" + "L".join(f"{x:.4g} {y:.4g}" for x, y in points)
