"""Images per second of the training loop, and exactly what that number covers."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

WINDOW_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class Throughput:
    """The rate over all that was measured so far, for the whole job."""

    images: int
    seconds: float
    steps: int
    warmup_steps: int  # left out, before the first window opened
    window_rates: tuple[float, ...] = field(repr=False)  # images/s of each whole window

    @property
    def images_per_second(self) -> float:
        """The rate."""
        return self.images / self.seconds

    @property
    def num_windows(self) -> int:
        """Whole windows; a last part counts in the rate, not in the spread."""
        return len(self.window_rates)

    @property
    def images_per_second_std(self) -> float | None:
        """Standard deviation over the windows; None: fewer than two."""
        return statistics.stdev(self.window_rates) if self.num_windows > 1 else None


class ThroughputMeter:
    """Time training steps in windows, from the end of warm-up on.

    In: waiting for data (the first batch of an epoch too), forward, backward, update, gradient traffic. Out: the first
    `warmup_steps` steps (allocator, autotuning), and what lies between `pause` and `resume` (evaluation, checkpoints).
    The device is waited for at the edges of windows and pauses only, so the meter does not slow what it measures.

    `resume` opens it; a window closes with the first step that ends `window_seconds` after it opened, pauses left out.
    """

    def __init__(
        self,
        *,
        warmup_steps: int,
        synchronize: Callable[[], None],
        window_seconds: float = WINDOW_SECONDS,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._warmup_steps, self._window_seconds = warmup_steps, window_seconds
        self._synchronize, self._clock = synchronize, clock
        self._warmup_left = warmup_steps
        self._running_since: float | None = None  # None: paused, or in warm-up
        self._images, self._steps, self._seconds = 0, 0, 0.0
        self._window_images, self._window_seconds_past = 0, 0.0
        self._rates: list[float] = []

    def resume(self) -> None:
        """The loop begins, or goes on after a pause."""
        if self._warmup_left == 0:
            self._running_since = self._now()

    def pause(self) -> None:
        """What follows does not count."""
        if self._running_since is not None:
            self._add(self._now() - self._running_since)
            self._running_since = None

    def step(self, images: int) -> None:
        """Count one finished step of so many images, summed over the job's processes."""
        if self._running_since is None:
            self._warmup_left -= 1
            self.resume()
            return
        self._steps += 1
        self._images += images
        self._window_images += images
        # On a GPU the clock alone runs ahead of the work; it only says when to look.
        if self._window_seconds_past + self._clock() - self._running_since >= self._window_seconds:
            self._close_window()

    def result(self) -> Throughput:
        """What was measured until now, or until the pause.

        Raises:
            ValueError: no step was measured; a rate of zero would look like a result.
        """
        if self._running_since is not None:
            self.pause()
            self.resume()
        if self._steps == 0:
            raise ValueError(f"no step was measured after {self._warmup_steps} of warm-up")
        return Throughput(
            images=self._images,
            seconds=self._seconds,
            steps=self._steps,
            warmup_steps=self._warmup_steps,
            window_rates=tuple(self._rates),
        )

    def _close_window(self) -> None:
        self.pause()
        self._rates.append(self._window_images / self._window_seconds_past)
        self._window_images, self._window_seconds_past = 0, 0.0
        self.resume()

    def _add(self, seconds: float) -> None:
        self._seconds += seconds
        self._window_seconds_past += seconds

    def _now(self) -> float:
        self._synchronize()
        return self._clock()
