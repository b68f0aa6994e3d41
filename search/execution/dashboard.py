"""Gauges of a run for Ray's dashboard, Prometheus and Grafana, and the address of the dashboard."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Protocol

from search.execution import grafana
from search.front.roles import metric_label
from search.record.events import Event, Finish, Measurement, Opening, Resume, Start
from search.record.run_state import RunState
from search.record.trial import Trial

logger = logging.getLogger(__name__)

HYPERVOLUME = (
    "Volume that the Pareto front of the finished trials dominates, in the product of the objectives' units. "
    "Reference point: the worst finished trial in each objective, and a tenth of the range beyond; it moves when a "
    "worse trial finishes."
)


ALLOWED = str.maketrans(".-+", "___")  # Prometheus refuses them in names, as of seconds_to_val_loss_0.5


class Gauge(Protocol):
    """Interface of `ray.util.metrics.Gauge`, as far as it is used."""

    def set(self, value: float, tags: dict[str, str]) -> None:
        """Set the last value of the series with these tags."""
        ...


class Metrics:
    """Listener of the journal that sets gauges: `search_<metric>`, `search_trials` and `search_hypervolume`.

    The first are by run and trial, one for each objective; the second by run and state, the third by run. Ray puts
    `ray_` before the names. An error is logged once and never reaches the run. Create it when Ray is up.
    """

    def __init__(
        self,
        run_state: RunState,
        gauge: Callable[[str, str, tuple[str, ...]], Gauge] | None = None,
        install: Callable[[], object] = grafana.install,
    ) -> None:
        """`gauge(name, description, tag_keys)` makes a gauge; None: Ray's. `install` is called at each event."""
        if gauge is None:
            from ray.util import metrics  # takes a second, and is useless before Ray is up

            gauge = metrics.Gauge
        self._gauge = gauge
        self._install = install
        self._gauges: dict[str, Gauge] = {}
        self._run_state = run_state
        self._failed = False

    def __call__(self, event: Event) -> None:
        """Set the gauges that an event changes."""
        try:
            match event:
                case Resume():  # a new Ray has no values
                    for trial in self._run_state.trials.values():
                        self._show_measurement(trial)
                    self._show_counts()
                case Measurement() if event.trial_id in self._run_state.trials:
                    self._show_measurement(self._run_state.trials[event.trial_id])
                case Opening() | Start() | Finish():
                    self._show_counts()
            self._install()
        except Exception:
            if not self._failed:
                logger.warning("the dashboard does not show all of this run", exc_info=True)
            self._failed = True

    def _show_counts(self) -> None:
        for state, total in self._run_state.counts().items():
            self._set("trials", "Trials by state.", total, state=state)
        if (found := self._run_state.hypervolume()) is not None:
            self._set("hypervolume", HYPERVOLUME, found[0])

    def _show_measurement(self, trial: Trial) -> None:
        info = self._run_state.info
        for metric in (o.metric for o in self._run_state.objectives):
            if math.isfinite(value := trial.metrics.get(metric, math.nan)):
                label, unit = metric_label(metric, info.data.name), info.metrics.get(metric) or "none"
                description = f"{label} of a trial's last measurement. Unit: {unit}."
                self._set(metric, description, value, trial_id=trial.trial_id)

    def _set(self, name: str, description: str, value: float, **tags: str) -> None:
        if name not in self._gauges:
            self._gauges[name] = self._gauge(f"search_{name.translate(ALLOWED)}", description, ("run", *tags))
        run = self._run_state.info.name.encode("ascii", "backslashreplace").decode()  # tags of Ray are ASCII
        self._gauges[name].set(value, {"run": run, **tags})


def announce(url: str | None) -> str:
    """Return the address of the dashboard at `url`, and how to log in. None: there is no dashboard."""
    if not url:
        return "Ray dashboard: not running"
    address = url if url.startswith("http") else f"http://{url}"
    return f"Ray dashboard: {address}\n  Ray's token authentication is on; this prints the token: ray get-auth-token"
