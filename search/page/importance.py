"""Bars of the importance of each setting for each objective."""

from __future__ import annotations

from markupsafe import Markup

from search.front.roles import metric_label
from search.page.render import render
from search.record.run_state import RunState
from search.report.importance import SHUFFLES, importance


def importance_bars(run_state: RunState, running: bool) -> Markup:
    """Render the bars. While a run is `running` they are left out: computing them would load the measured machine."""
    data = run_state.info.data.name
    objectives = [] if running else run_state.objectives
    found = {metric_label(objective.metric, data): importance(run_state, objective) for objective in objectives}
    return render("importance.html", running=running, found=found, shuffles=SHUFFLES)
