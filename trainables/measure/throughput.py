"""Images per second of the training loop: what the number covers, how sure it is, and what was left out of it."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from trainables.measure.drift import UNKNOWN, Drift

WINDOW_SECONDS = 0.5
MIN_WINDOWS = 3  # quiet ones; of fewer, nothing can be said about how they vary
# Of the cores' time taken by others: a window is left out. Ray's own processes take 3% of 2 fast cores and up to 10% of
# 2 slow ones (results/LOG.md), and are there in each trial of a search.
DISTURBED = 0.12
SLOWED = 1.15  # times as long as ever for a fixed piece of arithmetic: likewise
YARDSTICK_WINDOWS = 16  # as many as a probe has; a long training is not held up further

MIN_WARMUP_STEPS = 4
WARMUP_SECONDS = 0.5, 3.0  # at least: a GPU's clocks take that long to rise; at most: then the rule below has failed
STILL_WARMING = 0.9  # two steps take less than that of the two before them

# Student's t of a two-sided 95% interval. In between it is read off over 1 / degrees of freedom, a little too wide.
T_95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 8: 2.306, 10: 2.228, 15: 2.131, 30: 2.042}
T_95_NORMAL = 1.960


@dataclass(frozen=True, kw_only=True)
class Window:
    """Successive steps between two edges at which the device was waited for."""

    images: int = 0
    steps: int = 0
    seconds: float = 0.0
    foreign_seconds: float = 0.0  # what others took of the cores' time
    pace: float = 1.0  # at its end: seconds of a fixed piece of arithmetic, over the fewest ever
    yardstick: float | None = None  # after it: seconds of a fixed training step


@dataclass(frozen=True, kw_only=True)
class Throughput:
    """The rate over the windows that count, for the whole job, with its 95% interval."""

    images: int
    seconds: float
    steps: int
    windows: int  # whole ones; 0: what was measured is shorter than a window
    warmup_steps: int  # left out, before the first window opened
    disturbed_windows: int  # left out because others took the cores
    disturbed: bool  # too few windows were quiet, so the least disturbed of the others count too
    sampling_error: float | None = field(repr=False)  # relative standard error from the windows; None: unknown
    degrees_of_freedom: float = field(repr=False)  # of the sampling error
    drift: Drift = field(default=UNKNOWN, repr=False)  # between measurements, which the windows of one cannot show

    @property
    def images_per_second(self) -> float:
        """The rate."""
        return self.images / self.seconds

    @property
    def low(self) -> float | None:
        """Lower end of the 95% interval, in images/s; None: too few windows."""
        return None if self.sampling_error is None else self.images_per_second * (1 - _half_width(self))

    @property
    def high(self) -> float | None:
        """Upper end of the 95% interval, in images/s; None: too few windows."""
        return None if self.sampling_error is None else self.images_per_second * (1 + _half_width(self))


class ThroughputMeter:
    """Time training steps in windows, from the end of warm-up on.

    In: waiting for data (the first batch of an epoch too), forward, backward, update, gradient traffic. Out: warm-up
    (allocator, autotuning, compilation), and what lies between `pause` and `resume` (evaluation, checkpoints). The
    device is waited for after each step of warm-up, later at the edges of windows and pauses only, so the meter does
    not slow what it measures.

    `resume` opens it; a window closes with the first step that ends `window_seconds` after it opened, pauses left out.
    Warm-up is over when steps no longer get faster (see `_is_warm`), and after `max_warmup_steps` in any case; loaders
    that start with full buffers want `min_warmup_steps` to be as many more. `foreign` is a clock of the CPU seconds
    that others took from the trial's `cores`; `pace`, asked between windows, tells how slow they are, and
    `yardstick`, after the first of them, how slow training is; `drift` is what is known of the machine.
    """

    def __init__(
        self,
        *,
        max_warmup_steps: int,
        synchronize: Callable[[], None],
        min_warmup_steps: int = MIN_WARMUP_STEPS,
        foreign: Callable[[], float] = lambda: 0.0,
        pace: Callable[[], float] = lambda: 1.0,
        yardstick: Callable[[], float] | None = None,
        cores: int = 1,
        drift: Drift = UNKNOWN,
        window_seconds: float = WINDOW_SECONDS,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._warmup_bounds = min_warmup_steps, max_warmup_steps
        self._window_seconds, self._cores = window_seconds, cores
        self._synchronize, self._foreign, self._clock = synchronize, foreign, clock
        self._pace, self._yardstick, self._drift = pace, yardstick, drift
        self._warm = max_warmup_steps == 0
        self._warmup: list[float] = []  # seconds of each step
        self._opened: tuple[float, float] | None = None  # both clocks at the last edge; None: paused
        self._open = Window()
        self._windows: list[Window] = []

    @property
    def warming_up(self) -> bool:
        """Whether the next step will be left out."""
        return not self._warm

    @property
    def windows(self) -> Sequence[Window]:
        """Whole ones so far, disturbed ones too."""
        return self._windows

    @property
    def quiet_windows(self) -> list[Window]:
        """Those that were not disturbed."""
        return quiet(self._windows, self._cores)

    def resume(self) -> None:
        """The loop begins, or goes on after a pause."""
        self._opened = self._edge()

    def pause(self) -> None:
        """What follows does not count."""
        if self._opened is None:
            return
        (now, foreign_now), (opened, foreign_opened) = self._edge(), self._opened
        self._opened = None
        if self._warm:
            self._open = replace(
                self._open,
                seconds=self._open.seconds + now - opened,
                foreign_seconds=self._open.foreign_seconds + foreign_now - foreign_opened,
            )

    def step(self, images: int) -> None:
        """Count one finished step of so many images, summed over the job's processes."""
        assert self._opened is not None, "a step in a pause"
        if not self._warm:
            self._step_of_warmup(self._opened[0])
            return
        self._open = replace(self._open, images=self._open.images + images, steps=self._open.steps + 1)
        # On a GPU the clock alone runs ahead of the work; it only says when to look.
        if self._open.seconds + self._clock() - self._opened[0] >= self._window_seconds:
            self._close_window()

    def result(self) -> Throughput:
        """What was measured until now: whole windows, or where there is none, the part of one, without interval.

        Raises:
            ValueError: no step was measured; a rate of zero would look like a result.
        """
        result = throughput(self._windows or self._part(), self._cores, self._drift)
        return replace(result, windows=min(result.windows, len(self._windows)), warmup_steps=len(self._warmup))

    def settled(self, relative_half_width: float = 0.02, min_windows: int = 6) -> bool:
        """Whether measuring longer is not worth it: so many quiet windows that agree on the rate to so much.

        Drift between measurements, which the interval of the result also covers, does not get less by measuring on.
        """
        counted = self.quiet_windows
        if len(counted) < max(min_windows, MIN_WINDOWS):
            return False
        error, degrees_of_freedom = _sampling_error(counted)
        return error is not None and student_t(degrees_of_freedom) * error <= relative_half_width

    def _step_of_warmup(self, opened: float) -> None:
        self._opened = self._edge()
        self._warmup.append(self._opened[0] - opened)
        self._warm = _is_warm(self._warmup, *self._warmup_bounds)

    def _close_window(self) -> None:
        self.pause()
        pace = self._pace()
        yardstick = self._yardstick() if self._yardstick and len(self._windows) < YARDSTICK_WINDOWS else None
        self._windows.append(replace(self._open, pace=pace, yardstick=yardstick))
        self._open = Window()
        self.resume()

    def _part(self) -> list[Window]:
        if self._open.steps == 0:
            raise ValueError(f"no step was measured after {len(self._warmup)} of warm-up")
        if self._opened is not None:
            self.pause()
            self.resume()
        return [self._open]

    def _edge(self) -> tuple[float, float]:
        self._synchronize()
        return self._clock(), self._foreign()


def throughput(windows: Sequence[Window], cores: int, drift: Drift = UNKNOWN) -> Throughput:
    """The rate of the windows that count."""
    counting = counted(windows, cores)
    sampling_error, degrees_of_freedom = _sampling_error(counting)
    disturbed = any(_disturbance(w, cores) > 1 for w in counting)
    if disturbed:  # what the rate would be without them may be as far off as they held it back
        drift = replace(drift, deviation=math.hypot(drift.deviation, _held_back(counting)))
    return Throughput(
        images=sum(w.images for w in counting),
        seconds=math.fsum(w.seconds for w in counting),
        steps=sum(w.steps for w in counting),
        windows=len(counting),
        warmup_steps=0,
        disturbed_windows=len(windows) - len(counting),
        disturbed=disturbed,
        sampling_error=sampling_error,
        degrees_of_freedom=degrees_of_freedom,
        drift=drift,
    )


def counted(windows: Sequence[Window], cores: int) -> list[Window]:
    """Those in which others left the `cores` alone; where these are too few, as many as needed, the least disturbed.

    Whether a window counts never depends on its own rate.
    """
    by_disturbance = sorted(_disturbance(w, cores) for w in windows)
    worst = max(1.0, *by_disturbance[:MIN_WINDOWS]) if by_disturbance else 1.0
    return [w for w in windows if _disturbance(w, cores) <= worst]


def quiet(windows: Sequence[Window], cores: int) -> list[Window]:
    """Those in which others left the `cores` alone."""
    return [w for w in windows if _disturbance(w, cores) <= 1]


def rate_of(windows: Sequence[Window]) -> float:
    """Images per second of some windows together."""
    return sum(w.images for w in windows) / math.fsum(w.seconds for w in windows)


def differ(a: Throughput, b: Throughput) -> bool:
    """Whether the two rates differ, at a level of 5%. False too where that cannot be known.

    That is without an interval, and where a rate is of disturbed windows: it is then the neighbours' as much.
    """
    if a.sampling_error is None or b.sampling_error is None or a.disturbed or b.disturbed:
        return False
    errors = [(a.sampling_error, a.degrees_of_freedom), (b.sampling_error, b.degrees_of_freedom)]
    return abs(math.log(a.images_per_second / b.images_per_second)) > _quantile(errors, [a.drift, b.drift])


def student_t(degrees_of_freedom: float) -> float:
    """Half of a 95% interval in standard errors, when these were estimated with so many degrees of freedom."""
    ordered = sorted(T_95, reverse=True)
    inverse = [0.0, *(1 / known for known in ordered)]
    return float(np.interp(1 / degrees_of_freedom, inverse, [T_95_NORMAL, *(T_95[known] for known in ordered)]))


def _disturbance(window: Window, cores: int) -> float:
    """By others: above 1 it is too much."""
    allowed = DISTURBED * window.seconds * cores
    taken = window.foreign_seconds / allowed if allowed else 0.0
    return max(taken, (window.pace - 1) / (SLOWED - 1))


def _held_back(windows: Sequence[Window]) -> float:
    """By how much others may have lowered the rate, relative; all wait for the core that they took most of."""
    return math.fsum(w.pace - 1 + w.foreign_seconds / w.seconds for w in windows) / len(windows)


def _is_warm(seconds: Sequence[float], min_steps: int, max_steps: int) -> bool:
    """Whether warm-up is over after steps that took so long.

    It is when the last two are not 10% faster than the two before them: a first step of 4x is seen for four steps, a
    loader that delivers in bursts only delays it. The first step may hold a compilation, so it does not use up time.
    """
    steps, past = len(seconds), math.fsum(seconds[1:])
    if steps >= max_steps or past >= WARMUP_SECONDS[1]:
        return True
    if steps < min_steps or steps < 4 or past < WARMUP_SECONDS[0]:
        return False
    return seconds[-1] + seconds[-2] >= STILL_WARMING * (seconds[-3] + seconds[-4])


def _sampling_error(windows: Sequence[Window]) -> tuple[float | None, float]:
    """Relative standard error of images / seconds over successive windows, and its degrees of freedom.

    Windows end with a step and so differ in length: the error is that of a ratio (Cochran, Sampling Techniques, ch. 6).
    Neighbouring windows are alike, and n of them say as much as fewer that were not: their correlation is taken for
    that of an autoregression of order 1, without the bias that its estimate has (Marriott and Pope, 1954).
    """
    n = len(windows)
    if n < MIN_WINDOWS:
        return None, 0.0
    images, rate = sum(w.images for w in windows), rate_of(windows)
    residuals = [w.images - rate * w.seconds for w in windows]
    total = math.fsum(x * x for x in residuals)
    if total <= (1e-9 * images) ** 2:  # rounding errors of windows that are equal; their correlation says nothing
        return 0.0, n - 1.0
    correlation = math.fsum(x * y for x, y in itertools.pairwise(residuals)) / total
    correlation = min(max(correlation + (1 + 4 * max(correlation, 0.0)) / n, 0.0), 0.8)
    alike = (1 + correlation) / (1 - correlation)
    error = math.sqrt(total / (n - 1) * n * alike) / images
    return error, max(1.0, n / alike - 1)


def _half_width(throughput: Throughput) -> float:
    """Of the 95% interval, relative to the rate."""
    assert throughput.sampling_error is not None
    return _quantile([(throughput.sampling_error, throughput.degrees_of_freedom)], [throughput.drift])


def _quantile(errors: Sequence[tuple[float, float]], drifts: Sequence[Drift]) -> float:
    """Half of the 95% interval of a sum of independent errors, given with their degrees of freedom, and of drifts.

    The degrees of freedom of the sum are Welch's and Satterthwaite's.
    """
    # Drifts are independent, but what is known of them is not: it is one figure.
    known = min(drift.degrees_of_freedom for drift in drifts)
    parts = [*errors, (math.hypot(*(drift.deviation for drift in drifts)), known)]
    variance = math.fsum(error**2 for error, _ in parts)
    uncertain = math.fsum(error**4 / degrees_of_freedom for error, degrees_of_freedom in parts if error)
    return student_t(variance**2 / uncertain if uncertain > 0 else math.inf) * math.sqrt(variance)
