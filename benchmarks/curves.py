"""Figure of hypervolume over cost: one panel per family, one line per method, a band of one standard error."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from problems import family
from race import Course, Race

COLOURS = {"ours": "black", "random": "0.6"}


def draw(path: Path, courses: Mapping[Race, Course]) -> None:
    """Write the figure; lines are means over problems and seeds."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    panels = list(dict.fromkeys((race.setting, family(race.problem)) for race in courses))
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    size = (4.2 * columns, 3.6 * rows)
    figure, grid = pyplot.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    axes = grid.ravel()
    for axis in axes[len(panels) :]:
        axis.axis("off")
    for axis, (setting, name) in zip(axes, panels, strict=False):
        here = {r: c for r, c in courses.items() if (r.setting, family(r.problem)) == (setting, name)}
        costs = np.linspace(0, max(race.runs for race in here), 201)
        for method in dict.fromkeys(race.method for race in here):
            values = np.array([course.over(costs) for race, course in here.items() if race.method == method])
            band(axis, costs, values, label=method, lw=2.2 if method == "ours" else 1.2, color=COLOURS.get(method))
        axis.set(title=f"{name}, {setting}", xlabel="cost in full runs", ylim=(0, 1))
        axis.grid(alpha=0.3)
    for axis in grid[:, 0]:
        axis.set_ylabel("hypervolume / best known")
    axes[len(panels) - 1].legend(fontsize="small", frameon=False, loc="lower right")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def band(axis: Any, costs: NDArray[np.float64], values: NDArray[np.float64], **style: Any) -> None:
    """Draw the mean of `values`, shape (num_courses, num_costs), with a band of one standard error."""
    mean, error = values.mean(0), values.std(0) / np.sqrt(len(values))
    line = axis.plot(costs, mean, **style)
    axis.fill_between(costs, mean - error, mean + error, alpha=0.15, lw=0, color=line[0].get_color())
