"""Throughput meter: units (such as images) per second of training, with a 95% interval and what was left out."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from trainables.measure.drift import UNKNOWN_DRIFT, Drift
from trainables.student_t import student_t

WINDOW_SECONDS = 0.5
MIN_WINDOWS = 3  # uncontended; fewer do not show how much they vary
# Share of the cores' time that others may take from a window before it is discarded. Ray's own processes take 3% of
# 2 fast cores and up to 10% of 2 slow ones (results/LOG.md), and they run in each trial of a search.
MAX_INTERFERENCE = 0.12
MAX_SLOWDOWN = 1.15  # of a fixed piece of arithmetic, relative to its fastest run; slower windows are discarded
SETTLED_WINDOWS, SETTLED_HALF_WIDTH = 6, 0.02  # fewest uncontended windows, and half of their 95% interval at most
REFERENCE_WINDOWS = 16  # followed by a reference step: as many as a probe has, so a long training is not delayed

MIN_WARMUP_STEPS = 4
# At least 0.5 s, which a GPU's clocks take to rise. At most 3 s: by then the rule for the end of warm-up has failed.
WARMUP_SECONDS = 0.5, 3.0
STILL_WARMING = 0.9  # warm-up goes on while two steps take less than this share of the two before them


@dataclass(frozen=True, kw_only=True)
class Window:
    """Successive steps between two edges at which the device was synchronized."""

    units: float = 0
    steps: int = 0
    seconds: float = 0.0
    interference_seconds: float = 0.0  # CPU time that others took from the trial's cores
    slowdown: float = 1.0  # at the end of the window: time of a fixed piece of arithmetic, over its fastest run
    reference_seconds: float | None = None  # time of the reference step after the window


@dataclass(frozen=True, kw_only=True)
class Throughput:
    """Rate of the whole job over the counted windows, with its 95% interval."""

    units: float
    seconds: float
    steps: int
    windows: int  # whole ones; 0: the measurement is shorter than a window
    warmup_steps: int  # left out, before the first window opened
    contended_windows: int  # discarded because of interference
    contended: bool  # too few windows were uncontended, so the least contended of the others are counted as well
    sampling_error: float | None = field(repr=False)  # relative standard error from the windows; None: unknown
    degrees_of_freedom: float = field(repr=False)  # of the sampling error
    drift: Drift = field(default=UNKNOWN_DRIFT, repr=False)  # between measurements: not visible in one's windows

    @property
    def units_per_second(self) -> float:
        """Rate of the whole job."""
        return self.units / self.seconds

    @property
    def low(self) -> float | None:
        """Lower end of the 95% interval, in units/s; None: too few windows."""
        return None if self.sampling_error is None else self.units_per_second * math.exp(-_half_width(self))

    @property
    def high(self) -> float | None:
        """Upper end of the 95% interval, in units/s; None: too few windows."""
        return None if self.sampling_error is None else self.units_per_second * math.exp(_half_width(self))


class ThroughputMeter:
    """Time training steps in windows, starting after warm-up.

    Included: waiting for data (also for the first batch of an epoch), forward, backward, update, gradient exchange.
    Excluded: warm-up (allocator, autotuning, compilation) and the time between `pause` and `resume` (evaluation,
    checkpoints). The device is synchronized after each warm-up step, later only at the edges of windows and pauses:
    synchronizing each step would slow what is measured.

    `resume` opens the meter. A window closes with the first step that ends at least `window_seconds` after it opened,
    pauses excluded. Warm-up ends when steps no longer get faster (see `_is_warm`), at the latest after
    `max_warmup_steps`; a loader that starts with full buffers needs a larger `min_warmup_steps`.

    `interference` is a clock of the CPU seconds that others took from the trial's `cores`. `slowdown` is measured
    between windows, the `reference_step` after the first REFERENCE_WINDOWS of them. `drift` is that of the machine.
    """

    def __init__(
        self,
        *,
        max_warmup_steps: int,
        synchronize: Callable[[], None],
        min_warmup_steps: int = MIN_WARMUP_STEPS,
        interference: Callable[[], float] = lambda: 0.0,
        slowdown: Callable[[], float] = lambda: 1.0,
        reference_step: Callable[[], float] | None = None,
        cores: int = 1,
        drift: Drift = UNKNOWN_DRIFT,
        window_seconds: float = WINDOW_SECONDS,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._warmup_limits = min_warmup_steps, max_warmup_steps
        self._window_seconds, self._cores = window_seconds, cores
        self._synchronize, self._interference, self._clock = synchronize, interference, clock
        self._slowdown, self._reference_step, self._drift = slowdown, reference_step, drift
        self._warm = max_warmup_steps == 0
        self._warmup: list[float] = []  # seconds of each step
        self._opened: tuple[float, float] | None = None  # both clocks at the last edge; None: paused
        self._open = Window()
        self._windows: list[Window] = []

    @property
    def warming_up(self) -> bool:
        """True if the next step will be left out."""
        return not self._warm

    @property
    def windows(self) -> Sequence[Window]:
        """Whole windows so far, contended ones included."""
        return self._windows

    @property
    def uncontended_windows(self) -> list[Window]:
        """Whole windows so far whose interference is within its limit."""
        return uncontended(self._windows, self._cores)

    def resume(self) -> None:
        """Start the clocks, at the beginning or after a pause."""
        self._opened = self._edge()

    def pause(self) -> None:
        """Stop the clocks until `resume`."""
        if self._opened is None:
            return
        (now, interference_now), (opened, interference_opened) = self._edge(), self._opened
        self._opened = None
        if self._warm:
            self._open = replace(
                self._open,
                seconds=self._open.seconds + now - opened,
                interference_seconds=self._open.interference_seconds + interference_now - interference_opened,
            )

    def step(self, units: float) -> None:
        """Count one finished step of `units` units, summed over the job's processes."""
        assert self._opened is not None, "a step in a pause"
        if not self._warm:
            before, self._opened = self._opened, self._edge()
            self._warmup.append(self._opened[0] - before[0])
            self._warm = _is_warm(self._warmup, *self._warmup_limits)
            return
        self._open = replace(self._open, units=self._open.units + units, steps=self._open.steps + 1)
        # On a GPU the host's clock runs ahead of the work; it only decides when to synchronize.
        if self._open.seconds + self._clock() - self._opened[0] >= self._window_seconds:
            self._close_window()

    def result(self) -> Throughput:
        """Return the rate so far: over whole windows, or without interval over the part of the first.

        Raises:
            ValueError: no step was measured; a rate of zero would look like a result.
        """
        if not self._windows and not self._open.steps:
            raise ValueError(f"no step was measured after {len(self._warmup)} of warm-up")
        if not self._windows and self._opened is not None:
            self.pause()
            self.resume()
        result = throughput(self._windows or [self._open], self._cores, self._drift)
        return replace(result, windows=min(result.windows, len(self._windows)), warmup_steps=len(self._warmup))

    def settled(self) -> bool:
        """Return True if enough uncontended windows agree on the rate.

        Drift between measurements, which the interval of the result also covers, does not shrink by measuring on.
        """
        windows = self.uncontended_windows
        if len(windows) < SETTLED_WINDOWS:
            return False
        error, degrees_of_freedom = _sampling_error(windows)
        return error is not None and student_t(degrees_of_freedom) * error <= SETTLED_HALF_WIDTH

    def _close_window(self) -> None:
        self.pause()
        timed = self._reference_step if len(self._windows) < REFERENCE_WINDOWS else None
        window = replace(self._open, slowdown=self._slowdown(), reference_seconds=timed() if timed else None)
        self._windows.append(window)
        self._open = Window()
        self.resume()

    def _edge(self) -> tuple[float, float]:
        self._synchronize()
        return self._clock(), self._interference()


def throughput(windows: Sequence[Window], cores: int, drift: Drift = UNKNOWN_DRIFT) -> Throughput:
    """Return the rate over the uncontended windows; if they are too few, the least contended others are added.

    A window's own rate never decides whether it counts.
    """
    by_interference = sorted(_interference_over_limit(w, cores) for w in windows)
    limit = max(1.0, *by_interference[:MIN_WINDOWS]) if by_interference else 1.0
    counted = [w for w in windows if _interference_over_limit(w, cores) <= limit]
    sampling_error, degrees_of_freedom = _sampling_error(counted)
    contended = len(uncontended(counted, cores)) < len(counted)
    if contended:
        # Interference may have lowered the rate by this share: everyone waits for the most contended core.
        loss = math.fsum(w.slowdown - 1 + w.interference_seconds / w.seconds for w in counted) / len(counted)
        drift = replace(drift, deviation=math.hypot(drift.deviation, loss))
    return Throughput(
        units=sum(w.units for w in counted),
        seconds=math.fsum(w.seconds for w in counted),
        steps=sum(w.steps for w in counted),
        windows=len(counted),
        warmup_steps=0,
        contended_windows=len(windows) - len(counted),
        contended=contended,
        sampling_error=sampling_error,
        degrees_of_freedom=degrees_of_freedom,
        drift=drift,
    )


def uncontended(windows: Sequence[Window], cores: int) -> list[Window]:
    """Return the windows in which interference on the `cores` is within its limit."""
    return [w for w in windows if _interference_over_limit(w, cores) <= 1]


def rate_of(windows: Sequence[Window]) -> float:
    """Return the units per second of some windows together."""
    return sum(w.units for w in windows) / math.fsum(w.seconds for w in windows)


def differ(a: Throughput, b: Throughput) -> bool:
    """Return True if the two rates differ at the 5% level; False also if that cannot be known.

    It cannot be known without an interval, nor for a contended rate, which depends on interference as well.
    """
    if a.sampling_error is None or b.sampling_error is None or a.contended or b.contended:
        return False
    errors = [(a.sampling_error, a.degrees_of_freedom), (b.sampling_error, b.degrees_of_freedom)]
    return abs(math.log(a.units_per_second / b.units_per_second)) > _quantile(errors, [a.drift, b.drift])


def _interference_over_limit(window: Window, cores: int) -> float:
    """Interference over its limit; above 1 the window is discarded."""
    allowed = MAX_INTERFERENCE * window.seconds * cores
    taken = window.interference_seconds / allowed if allowed else 0.0
    return max(taken, (window.slowdown - 1) / (MAX_SLOWDOWN - 1))


def _is_warm(seconds: Sequence[float], min_steps: int, max_steps: int) -> bool:
    """Return True if the last two of the steps, which took `seconds`, are not 10% faster than the two before.

    A first step of 4x is noticed for four steps; a loader that delivers in bursts only delays the end. The first step
    may include a compilation, so its time does not count towards WARMUP_SECONDS.
    """
    steps, past = len(seconds), math.fsum(seconds[1:])
    if steps >= max_steps or past >= WARMUP_SECONDS[1]:
        return True
    if steps < min_steps or steps < 4 or past < WARMUP_SECONDS[0]:
        return False
    return seconds[-1] + seconds[-2] >= STILL_WARMING * (seconds[-3] + seconds[-4])


def _sampling_error(windows: Sequence[Window]) -> tuple[float | None, float]:
    """Relative standard error of units / seconds over successive windows, and its degrees of freedom.

    Windows end with a step and so differ in length: the error is that of a ratio (Cochran, Sampling Techniques, ch. 6).
    Successive windows are correlated, so n of them carry the information of fewer independent ones: an autoregression
    of order 1 is assumed, with the bias of its estimate removed (Marriott and Pope, 1954).
    """
    n = len(windows)
    if n < MIN_WINDOWS:
        return None, 0.0
    units, rate = sum(w.units for w in windows), rate_of(windows)
    residuals = [w.units - rate * w.seconds for w in windows]
    total = math.fsum(x * x for x in residuals)
    if total <= (1e-9 * units) ** 2:  # rounding errors of equal windows; their correlation is meaningless
        return 0.0, n - 1.0
    correlation = math.fsum(x * y for x, y in itertools.pairwise(residuals)) / total
    correlation = min(max(correlation + (1 + 4 * max(correlation, 0.0)) / n, 0.0), 0.8)
    inflation = (1 + correlation) / (1 - correlation)
    error = math.sqrt(total / (n - 1) * n * inflation) / units
    return error, max(1.0, n / inflation - 1)


def _half_width(throughput: Throughput) -> float:
    """Half of the 95% interval of the rate's natural logarithm."""
    assert throughput.sampling_error is not None
    return _quantile([(throughput.sampling_error, throughput.degrees_of_freedom)], [throughput.drift])


def _quantile(errors: Sequence[tuple[float, float]], drifts: Sequence[Drift]) -> float:
    """Half of the 95% interval of a sum of independent errors, given with their degrees of freedom, and of drifts.

    The degrees of freedom of the sum follow Welch and Satterthwaite.
    """
    # Drifts are independent, but their estimates are one and the same figure.
    known = min(drift.degrees_of_freedom for drift in drifts)
    parts = [*errors, (math.hypot(*(drift.deviation for drift in drifts)), known)]
    variance = math.fsum(error**2 for error, _ in parts)
    uncertain = math.fsum(error**4 / degrees_of_freedom for error, degrees_of_freedom in parts if error)
    return student_t(variance**2 / uncertain if uncertain > 0 else math.inf) * math.sqrt(variance)
