"""The progress of one training in the terminal: a bar where it can be redrawn, else one line an epoch."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from search.text.markdown import WIDTH
from search.text.wording import about, duration, half_width, spread
from search.train.full_training import Epoch


class EpochsLeft:
    """Shows each epoch as it ends. `labels`: the metrics to show, by name; `clock`: seconds."""

    def __init__(
        self,
        epochs: int,
        labels: Mapping[str, str],
        units: Mapping[str, str],
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._epochs, self._labels, self._units = epochs, labels, units
        self._console = console or Console()
        self._clock = clock
        self._began = clock()
        self._ends: list[tuple[int, float]] = []  # of epochs: which, and when
        self._last: Epoch | None = None
        self._live: Live | None = None

    @property
    def last(self) -> int:
        """The last epoch that ended; 0: none yet."""
        return self._last.number if self._last else 0

    def __call__(self, epoch: Epoch) -> None:
        """An epoch has ended. The first may be one that a checkpoint remembers."""
        self._ends.append((epoch.number, self._clock()))
        self._last = epoch
        if self._live is None:
            self.announce(line(epoch, self._epochs, self._cells(epoch), self._left()))

    def announce(self, text: str) -> None:
        """Print something, above the bar where there is one."""
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

    def _left(self) -> float:
        """Seconds until the last epoch ends, as the epochs of this process took; NaN: not known yet."""
        if not self._ends:
            return math.nan
        (first, since), (last, until) = self._ends[0], self._ends[-1]
        if last == first:  # of one epoch only a first one says how long it took, start included
            return (until - self._began) * (self._epochs - last) if first == 1 else math.nan
        return (until - since) / (last - first) * (self._epochs - last)

    def _cells(self, epoch: Epoch) -> list[str]:
        return [
            _cell(epoch.metrics, name, label, self._units.get(name, ""))
            for name, label in self._labels.items()
            if name in epoch.metrics
        ]

    def _view(self) -> RenderableType:
        now, left = self._clock(), self._left()
        if self._ends and math.isfinite(left):
            left = max(0.0, left - (now - self._ends[-1][1]))
        shown = [f"epoch {self.last}/{self._epochs}", duration(now - self._began), *_time(left, "about ")]
        width = min(self._console.width, WIDTH)
        row = Table.grid(padding=(0, 2, 0, 0))
        bar = ProgressBar(total=self._epochs, completed=self.last, width=min(27, width // 3))
        row.add_row(bar, Text(" · ".join(shown), no_wrap=True, overflow="ellipsis"))
        cells = Text("  ".join(self._cells(self._last)) if self._last else "", no_wrap=True, overflow="ellipsis")
        return Group(row, cells)


def line(epoch: Epoch, epochs: int, cells: Sequence[str], seconds_left: float) -> str:
    """For where nothing can be redrawn, in 80 columns: cells that do not fit are left out, the time left is not."""
    head, tail = f"epoch {epoch.number:>{len(str(epochs))}}/{epochs}", _time(seconds_left, "")
    shown = list(cells)
    while shown and len("  ".join([head, *shown, *tail])) > WIDTH:
        shown.pop()
    return "  ".join([head, *shown, *tail])


def _time(seconds_left: float, prefix: str) -> list[str]:
    known = math.isfinite(seconds_left) and seconds_left > 0
    return [f"{prefix}{about(seconds_left).removeprefix('about ')} left"] if known else []


def _cell(metrics: Mapping[str, float], name: str, label: str, unit: str) -> str:
    value = spread(metrics[name], half_width(metrics, name))
    return f"{value} {unit}" if "/" in unit else f"{label} {value}"
