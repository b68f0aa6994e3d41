"""Progress of one training in the terminal: a progress bar, or one line per epoch where lines cannot be redrawn."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self, TextIO, cast

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from search.front.intervals import half_interval, least_value
from search.text.durations import format_duration, rough_duration
from search.text.markdown import WIDTH
from search.text.numbers import plus_minus
from search.text.unbreakable import Unbreakable
from search.train.child_process import Epoch

STEP_LINE_SECONDS = 60.0


class Progress:
    """Display of the epochs that have ended. `labels`: the metrics to show, by name; `clock` returns seconds."""

    def __init__(
        self,
        epochs: int,
        labels: Mapping[str, str],
        units: Mapping[str, str],
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._epochs, self._labels, self._units = epochs, labels, units
        self._console, self._clock, self._start = console or Console(), clock, clock()
        self._console.file = cast(TextIO, Unbreakable(self._console.file))
        self._ends: list[tuple[int, float]] = []  # number of each ended epoch, and its end
        self._cells: list[str] = []
        self._steps: tuple[int, int, int] | None = None  # epoch that runs, its steps so far, and all of them
        self._told = self._start  # when the last line was printed
        self._live: Live | None = None

    @property
    def last_epoch(self) -> int:
        """Number of the last epoch that ended; 0 before the first."""
        return self._ends[-1][0] if self._ends else 0

    def update(self, epoch: Epoch) -> None:
        """Show an epoch that has ended. The first one may come from a checkpoint."""
        self._ends.append((epoch.number, self._clock()))
        self._steps, self._told = None, self._clock()
        metrics = epoch.metrics
        self._cells = []
        for name, label in self._labels.items():
            if name in metrics:
                unit = self._units.get(name, "")
                value = plus_minus(metrics[name], half_interval(metrics, name), least_value(name))
                self._cells.append(f"{value} {unit}" if "/" in unit else f"{label} {value}")
        if self._live is None:
            self.announce(progress_line(epoch.number, self._epochs, self._cells, self._seconds_left()))

    def update_step(self, epoch: int, step: int, steps: int) -> None:
        """Show how far an epoch is, in a line of its own at most once a minute where there is no bar."""
        self._steps = epoch, step, steps
        if self._live is None and self._clock() - self._told >= STEP_LINE_SECONDS:
            self._told = self._clock()
            self.announce(f"epoch {epoch}/{self._epochs}: step {step:,} of {steps:,}")

    def announce(self, text: str) -> None:
        """Print a text, above the bar where there is one."""
        self._console.print(text, soft_wrap=True, highlight=False, markup=False)

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._live = Live(console=self._console, refresh_per_second=2, get_renderable=self._view)
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _seconds_left(self) -> float:
        """Seconds until the last epoch ends, at the speed of this process; NaN while unknown."""
        if not self._ends:
            return math.nan
        (first, first_end), (last, last_end) = self._ends[0], self._ends[-1]
        if last == first:  # epoch 1 alone includes the start; a later first epoch may come from a checkpoint
            return (last_end - self._start) * (self._epochs - last) if first == 1 else math.nan
        return (last_end - first_end) / (last - first) * (self._epochs - last)

    def _view(self) -> RenderableType:
        now, left = self._clock(), self._seconds_left()
        if math.isfinite(left):
            left = max(0.0, left - (now - self._ends[-1][1]))
        epoch, step, steps = self._steps or (self.last_epoch, 0, 1)
        within = [f"step {step:,}/{steps:,}"] if self._steps else []
        shown = [f"epoch {epoch}/{self._epochs}", *within, format_duration(now - self._start), *_time_left(left)]
        width = min(27, min(self._console.width, WIDTH) // 3)
        bar = ProgressBar(total=self._epochs, completed=self.last_epoch + step / steps, width=width)
        row = Table.grid(padding=(0, 2, 0, 0))
        row.add_row(bar, Text(" · ".join(shown), no_wrap=True, overflow="ellipsis"))
        return Group(row, Text("  ".join(self._cells), no_wrap=True, overflow="ellipsis"))


def progress_line(epoch: int, epochs: int, cells: Sequence[str], seconds_left: float) -> str:
    """Return one line of at most 80 columns; cells that do not fit are left out, the time left stays."""
    head, tail = f"epoch {epoch:>{len(str(epochs))}}/{epochs}", _time_left(seconds_left)
    shown = list(cells)
    while shown and len("  ".join([head, *shown, *tail])) > WIDTH:
        shown.pop()
    return "  ".join([head, *shown, *tail])


def _time_left(seconds: float) -> list[str]:
    return [f"{rough_duration(seconds)} left"] if math.isfinite(seconds) and seconds > 0 else []
