"""Grafana dashboard of searches, copied to the folder from which the Grafana that Ray configures reads its own."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

DASHBOARD = "grafana_dashboard.json"  # beside this file; runs and objectives are variables of it
INSTALLED_AS = "training_search_grafana_dashboard.json"
LAST_OF_RAYS = "train_grafana_dashboard.json"  # Ray empties the folder first, and writes this file last


def install(folder: Path | None = None) -> bool:
    """Copy the dashboard if Ray has written its own, some time after its start; return whether the copy is there.

    It never waits: call it as often as you like. `folder` None: the folder of this process's Ray.
    """
    folder = folder or ray_dashboard_folder()
    if folder is None or not (folder / LAST_OF_RAYS).exists():
        return False
    if not (copy := folder / INSTALLED_AS).exists():
        copy.write_text(files("search.execution").joinpath(DASHBOARD).read_text())
    return True


def ray_dashboard_folder() -> Path | None:
    """Return the folder that `ray/dashboard/modules/metrics/metrics_head.py` uses; None: not on this machine."""
    if chosen := os.environ.get("RAY_METRICS_GRAFANA_DASHBOARD_OUTPUT_DIR"):
        return Path(chosen)
    if chosen := os.environ.get("RAY_METRICS_OUTPUT_ROOT"):
        return Path(chosen) / "grafana" / "dashboards"
    from search.execution.ray_hooks import session_folder  # imports Ray: a second, and useless before Ray is up

    session = session_folder()
    return None if session is None else session / "metrics" / "grafana" / "dashboards"
