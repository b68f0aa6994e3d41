"""What Ray's dashboard, Prometheus and Grafana show of a run: gauges fed from its journal, and the way to the page."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from search.execution import grafana
from search.record.history import History, Trial
from search.record.journal import Event
from search.text.wording import metric_label

logger = logging.getLogger(__name__)

HYPERVOLUME = (
    "What the Pareto front of the finished trials dominates, in the product of the objectives' units. Reference point: "
    "the worst finished trial in each objective, and a tenth of the range beyond; it moves when a worse trial finishes."
)


class Gauge(Protocol):
    """What is needed of `ray.util.metrics.Gauge`."""

    def set(self, value: float, tags: dict[str, str]) -> None:
        """Keep this as the last value of the series with these tags."""
        ...


class Metrics:
    """Sets gauges as the journal is written. Hand it to the Journal as a listener, once Ray is up.

    `search_<metric>` of each objective by run and trial, `search_trials` by run and state, `search_hypervolume` by
    run; Ray puts `ray_` before the names. What cannot be shown is logged once and never reaches the run.
    """

    def __init__(
        self,
        gauge: Callable[[str, str, tuple[str, ...]], Gauge] | None = None,
        install: Callable[[], object] = grafana.install,
    ) -> None:
        """`gauge(name, description, tag_keys)` makes a gauge; None: Ray's. `install` is tried at each event."""
        self._gauge = gauge or _ray_gauge
        self._install = install
        self._gauges: dict[str, Gauge] = {}
        self._history = History()
        self._failed = False

    def __call__(self, event: Event) -> None:
        """Take in an event and set what it changes."""
        self._history.apply(event)
        try:
            self._show(event)
            self._install()
        except Exception:
            self._log_once()

    def replay(self, events: Iterable[Event]) -> None:
        """Take in what happened before a resume. A new Ray knows nothing of it, so it is shown too."""
        for event in events:
            self(event)

    def _show(self, event: Event) -> None:
        if event["event"] == "measurement":
            self._show_measurement(self._history.trials[event["trial_id"]])
        if event["event"] in ("run", "start", "finish"):
            for state, total in self._history.counts().items():
                self._set("trials", "Trials by state.", total, state=state)
        if event["event"] == "finish" and (found := self._history.hypervolume()) is not None:
            self._set("hypervolume", HYPERVOLUME, found[0])

    def _show_measurement(self, trial: Trial) -> None:
        info = self._history.info
        for metric in (o.metric for o in self._history.objectives):
            if math.isfinite(value := trial.metrics.get(metric, math.nan)):
                unit = info.get("metrics", {}).get(metric, "")
                description = (
                    f"{metric_label(metric, info['data'])} of a trial's last measurement. Unit: {unit or 'none'}."
                )
                self._set(metric, description, value, trial_id=trial.trial_id)

    def _set(self, name: str, description: str, value: float, **tags: str) -> None:
        if name not in self._gauges:
            self._gauges[name] = self._gauge(f"search_{name}", description, ("run", *tags))
        self._gauges[name].set(value, {"run": self._history.info["name"], **tags})

    def _log_once(self) -> None:
        if not self._failed:
            logger.warning("the dashboard does not show all of this run", exc_info=True)
        self._failed = True


def announce(url: str | None) -> str:
    """Where the dashboard is and how to get in; `url` as Ray gives it, None: there is none."""
    if not url:
        return "Ray dashboard: not running"
    address = url if url.startswith("http") else f"http://{url}"
    return f"Ray dashboard: {address}\n  Ray's token authentication is on; this prints the token: ray get-auth-token"


def _ray_gauge(name: str, description: str, tag_keys: tuple[str, ...]) -> Any:
    from ray.util.metrics import Gauge  # a second to import, and of no use before Ray is up

    return Gauge(name, description, tag_keys)
