"""Progress of a run: a live view in a terminal, otherwise one line per relevant event."""

import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Self, TextIO, cast

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from search.front.differences import FEWEST_ROUNDS
from search.front.intervals import half_interval, least_value
from search.front.roles import is_interval_end
from search.front.targets import target_of
from search.record.activity import activity, phase
from search.record.budget_use import budget_use
from search.record.events import (
    Again,
    BesideNeighbour,
    End,
    Event,
    Finish,
    Measurement,
    OnTestSet,
    Opening,
    Repeat,
    Resume,
    Retry,
    Start,
    Turn,
    Wait,
)
from search.record.run_state import RunState
from search.record.trial import Trial
from search.terminal.trial_rows import front_title
from search.terminal.view import View
from search.text.configurations import format_change, format_settings
from search.text.durations import format_duration, rough_duration
from search.text.markdown import wrap
from search.text.numbers import first_few, format_number, format_ratio, join_words, plural, plus_minus
from search.text.unbreakable import Unbreakable

MAX_RUNNING = 8  # trials that are named in a message
QUIET_SECONDS = 60.0  # without a message, before one says what runs


class Progress:
    """Listener of the journal and context manager that shows the run.

    Errors of the output never reach the run. `clock` returns seconds since 1970.
    """

    def __init__(
        self, run_state: RunState, console: Console | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self._console = console or Console()
        self._console.file = cast(TextIO, Unbreakable(self._console.file))
        self._clock = clock
        self._run_state = run_state
        self._view = View(run_state)
        self._live: Live | None = None
        self._closed = threading.Event()
        self._announced = clock()
        self._reminder = threading.Thread(target=self._remind, name="progress", daemon=True)

    def __call__(self, event: Event) -> None:
        """Show what an event changed."""
        with self._run_state.lock:
            self._view.forget()
            line = None if self._live or self._closed.is_set() else event_line(self._run_state, event)
        if line is not None:
            self.announce(line)

    def announce(self, text: str) -> None:
        """Print a message, wrapped at words: above the live view if there is one, otherwise in at most 80 columns."""
        self._announced = self._clock()
        if self._live is None:
            text = "\n".join(wrap(line, "  ") for line in text.splitlines())
        self._console.print(text, soft_wrap=self._live is None, highlight=False, markup=False)

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._live = Live(console=self._console, refresh_per_second=2, get_renderable=self._drawn)
            self._live.start()
        else:
            self._reminder.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the last state on the screen and print no further event; later output appears below it."""
        self._closed.set()
        if self._live is not None:
            self._live.stop()  # draws a last time
            self._live = None
            self.announce("")

    def _remind(self) -> None:
        """Say now and then what runs, while there is no event."""
        while not self._closed.wait(QUIET_SECONDS / 10):
            if self._clock() - self._announced >= QUIET_SECONDS:
                with self._run_state.lock:
                    line = running_line(self._run_state, self._clock())
                self.announce(line)

    def _drawn(self) -> RenderableType:
        try:
            with self._run_state.lock:
                options = self._console.options
                return self._view.draw(self._clock(), options.max_width, self._console.height, options.ascii_only)
        except Exception as error:  # a drawing error must not end a run of hours
            return Text(f"the view cannot be drawn: {error!r}")


def running_line(run_state: RunState, now: float) -> str:
    """Return which trials run, or what else the run does, and the time left."""
    running = [trial for trial in run_state.trials.values() if trial.state == "running"]
    names = [f"{trial.trial_id} {activity(run_state, trial)}" for trial in running]
    use = budget_use(run_state, now) if run_state.opening is not None else None
    left = f"; {rough_duration(use.seconds_left)} left" if use is not None and use.seconds_left else ""
    return f"running: {', '.join(first_few(names, MAX_RUNNING))}{left}" if names else f"{phase(run_state)}{left}"


def event_line(run_state: RunState, event: Event) -> str | None:
    """Return the line for an event where the output cannot be redrawn; None if the event needs none."""
    trial = run_state.trials.get(getattr(event, "trial_id", ""))
    match event:
        case Opening():
            return f"{event.name}: {event.data.description}"
        case Resume():
            begun = [t for t in run_state.trials.values() if t.state == "running" and t.epochs]
            again = "".join(f"; {t.trial_id} goes on after epoch {t.epochs}" for t in begun)
            return f"{run_state.info.name} continues: {plural(len(run_state.counted()), 'trial')} so far{again}"
        case Retry():
            return f"{event.trial_id} is retried: {event.reason}"
        case Wait():
            return f"{event.trial_id} {event.reason or 'has its resources'}"
        case Start() if trial is not None and not run_state.is_preparing(trial):
            return f"{trial.trial_id} starts{_format_config(run_state, trial)}"
        case Measurement() if trial is not None and trial.kind != "probe":
            epoch, epochs = event.epoch, run_state.length(trial)
            metrics = _format_metrics(run_state, trial.metrics, trial)
            return f"{trial.trial_id} epoch {epoch}/{epochs}{metrics}" if epoch < epochs else None
        case Finish() if trial is not None:
            name = f"probe {trial.trial_id}" if run_state.is_preparing(trial) else trial.trial_id
            after = "" if trial.kind == "probe" else f" after {plural(trial.epochs, 'epoch')}"
            metrics = _format_metrics(run_state, trial.metrics, trial)
            if trial.reason:
                metrics = f": {trial.reason}{metrics.replace(':', ';', 1)}"
            if trial.state == "complete" and (violated := run_state.violated(trial)):
                metrics += f"; violates {join_words(violated)}"
            duration = format_duration(trial.seconds)
            return f"{name} {trial.state}{after}, {duration}{metrics}{_format_config(run_state, trial)}"
        case Repeat():
            return f"{event.trial_id} probed again{_format_metrics(run_state, event.metrics)}"
        case Again():
            failed = f" failed: {event.reason}" if event.reason else ""
            return f"{event.trial_id} with seed {event.seed}{failed}{_format_metrics(run_state, event.metrics)}"
        case Turn() if trial is not None and (other := run_state.trials.get(event.other)):
            return _format_turn(run_state, trial, other)
        case BesideNeighbour() if trial is not None:
            return _format_neighbour(trial, event)
        case OnTestSet():
            failed = f" failed: {event.reason}" if event.reason else ""
            return f"{event.trial_id} on the test set{failed}{_format_tested(run_state, event.metrics)}"
        case End():
            states = ", ".join(f"{total} {state}" for state, total in run_state.shown_counts(is_running=False).items())
            return f"ended: {event.reason}; {states or 'no trial'}; {front_title(run_state, None)}"
    return None


def _format_turn(run_state: RunState, trial: Trial, other: Trial) -> str | None:
    """Return the ratio of two rates at every tenth round."""
    rounds, ratio = run_state.num_rounds(trial, other), run_state.rate_ratio(trial, other)
    if rounds % 10 or ratio is None:
        return None
    return f"{trial.trial_id} beside {other.trial_id}, {rounds} turns each: {format_ratio(*ratio.ratio)} times the rate"


def _format_neighbour(trial: Trial, event: BesideNeighbour) -> str | None:
    """Return the gain of a change after its last round of each attempt, as far as that can be known."""
    change = {(each.parameter, each.new): each for each in trial.neighbours}.get((event.parameter, event.value))
    if change is None or len(change.rounds) % FEWEST_ROUNDS or (estimate := change.estimate) is None:
        return None
    text = format_change(event.parameter, event.old, event.value)
    return f"{trial.trial_id} with {text}: {format_ratio(*estimate.ratio)} times the rate"


def _format_config(run_state: RunState, trial: Trial) -> str:
    return f" [{format_settings(trial.config, run_state.parameters())}]"


def _format_metrics(run_state: RunState, metrics: Mapping[str, float], trial: Trial | None = None) -> str:
    """Return `: name value, ...` of the measured objectives; `trial`: whose they are, which may miss a target."""
    names = [o.metric for o in run_state.objectives]
    found = {name: format_number(x) for name in names if math.isfinite(x := metrics.get(name, math.nan))}
    if trial is not None:
        found |= {name: run_state.format_metric(trial, name) for name in found if target_of(name)}
    texts = [f"{run_state.label(name)} {text}" for name, text in found.items()]
    return f": {', '.join(texts)}" if texts else ""


def _format_tested(run_state: RunState, metrics: Mapping[str, float]) -> str:
    """Return `: name value ± half, ...` of all metrics of a test set."""
    found = {name: x for name, x in metrics.items() if math.isfinite(x) and not is_interval_end(name, metrics)}
    halves = {name: half_interval(metrics, name) for name in found}
    texts = [f"{run_state.label(name)} {plus_minus(x, halves[name], least_value(name))}" for name, x in found.items()]
    return f": {', '.join(texts)}" if texts else ""
