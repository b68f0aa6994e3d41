"""The Grafana dashboard of searches, put beside Ray's own, where the Grafana that Ray configures looks for them."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

DASHBOARD = "grafana_dashboard.json"  # beside this file; runs and objectives are variables of it
INSTALLED_AS = "training_search_grafana_dashboard.json"
LAST_OF_RAYS = "train_grafana_dashboard.json"  # Ray empties the folder first, and writes this one last


def install(folder: Path | None = None) -> bool:
    """Copy the dashboard once Ray has written its own, which it does a while after its start; whether it is there.

    Ask as often as you like: it waits for nothing. `folder` None: that of the Ray of this process.
    """
    folder = folder or rays_folder()
    if folder is None or not (folder / LAST_OF_RAYS).exists():
        return False
    ours = folder / INSTALLED_AS
    if not ours.exists():
        ours.write_text(files("search.execution").joinpath(DASHBOARD).read_text())
    return True


def rays_folder() -> Path | None:
    """As `ray/dashboard/modules/metrics/metrics_head.py` settles it; None: no Ray runs, or its head elsewhere."""
    if chosen := os.environ.get("RAY_METRICS_GRAFANA_DASHBOARD_OUTPUT_DIR"):
        return Path(chosen)
    if chosen := os.environ.get("RAY_METRICS_OUTPUT_ROOT"):
        return Path(chosen) / "grafana" / "dashboards"
    import ray  # a second to import, and of no use before it is up

    node = ray._private.worker._global_node
    return None if node is None else Path(node.get_session_dir_path()) / "metrics" / "grafana" / "dashboards"
