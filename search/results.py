"""Public entry for notebooks: `load` a results folder, then read its DataFrames and draw its figures.

Needs pandas, numpy, moocore and pydantic, the figures also matplotlib; neither Ray nor torch.
"""

from __future__ import annotations

from pathlib import Path

from search import plots
from search.record import dataframes
from search.record.columns import COLUMNS
from search.record.dataframes import write_tables

__all__ = ["COLUMNS", "Run", "load", "write_tables"]


class Run(dataframes.Run):
    """A run as DataFrames, with its figures as methods: each takes matplotlib Axes or makes some, and returns them.

    A figure that has nothing to draw raises a ValueError that says what is missing.
    """

    plot_front = plots.plot_front
    plot_curves = plots.plot_curves
    plot_parallel = plots.plot_parallel
    plot_importance = plots.plot_importance
    plot_stages = plots.plot_stages


def load(folder: str | Path) -> Run:
    """Read a results folder.

    Raises:
        FileNotFoundError: the folder contains no journal.
        ValueError: the journal is not one of a run.
    """
    run = dataframes.load(folder)
    return Run(run.folder, run.state)
