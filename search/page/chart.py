"""Parts that the charts share: axes of metrics and their titles."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from search.front.objective import Objective
from search.page.axes import Axis, axis
from search.record.dataframes import Run
from search.text.metrics import ARROWS

CROWD = 200  # lines in one chart above which they are drawn faintly


def metric_axis(run: Run, metric: str, values: Sequence[float]) -> Axis:
    """Return an axis for values of a metric; logarithmic for rates, which are compared by ratios."""
    return axis(values, log=is_log(run, metric, values))


def is_log(run: Run, metric: str, values: Iterable[float]) -> bool:
    """Return whether the metric is a rate and all values have a logarithm."""
    return run.state.is_rate(metric) and min(filter(math.isfinite, values), default=0.0) > 0


def metric_title(run: Run, objective: Objective, of: Axis) -> str:
    """Title of an objective's axis: `images_per_second ↑ (images/s, log scale)`."""
    notes = ", ".join(filter(None, [run.state.unit(objective.metric), "log scale" if of.log else ""]))
    return f"{run.state.label(objective.metric)} {ARROWS[objective.goal]}" + (f" ({notes})" if notes else "")
