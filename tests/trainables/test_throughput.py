"""The meter, under a clock that stands still unless it is moved, in worlds whose rate is known."""

import itertools
import math
import random
import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pytest

from trainables.measure.drift import TYPICAL_DRIFT, UNKNOWN_DRIFT, Drift
from trainables.measure.throughput import (
    REFERENCE_WINDOWS,
    Throughput,
    ThroughputMeter,
    Window,
    differ,
    throughput,
)
from trainables.student_t import student_t


@dataclass
class Clock:
    """Waiting for the device takes `waiting` seconds; others have taken `foreign` seconds of the cores."""

    now: float = 0.0
    synchronizations: int = 0
    waiting: float = 0.0
    interference: float = 0.0

    def __call__(self) -> float:
        return self.now

    def synchronize(self) -> None:
        self.synchronizations += 1
        self.now += self.waiting


def meter_of(
    clock: Clock,
    *,
    max_warmup_steps: int = 0,
    min_warmup_steps: int = 4,
    window_seconds: float = 1.0,
    cores: int = 1,
) -> ThroughputMeter:
    return ThroughputMeter(
        max_warmup_steps=max_warmup_steps,
        min_warmup_steps=min_warmup_steps,
        synchronize=clock.synchronize,
        interference=lambda: clock.interference,
        cores=cores,
        window_seconds=window_seconds,
        clock=clock,
    )


def run(meter: ThroughputMeter, clock: Clock, steps: Iterable[float], images: int = 64) -> None:
    for seconds in steps:
        clock.now += seconds
        meter.step(images)


def measured(steps: Iterable[float], max_warmup_steps: int = 0) -> Throughput:
    clock = Clock()
    meter = meter_of(clock, max_warmup_steps=max_warmup_steps)
    meter.resume()
    run(meter, clock, steps)
    return meter.result()


# --- what is in the number --------------------------------------------------------------------------------------------


def test_the_wait_for_the_first_batch_is_in_and_what_lies_in_a_pause_is_out() -> None:
    clock = Clock()
    meter = meter_of(clock)
    for _ in range(2):  # epochs
        meter.resume()
        clock.now += 3.0  # the first batch is late
        run(meter, clock, [0.25] * 5)
        meter.pause()
        clock.now += 50.0  # evaluation, checkpoint
    assert meter.result().seconds == 2 * (3.0 + 5 * 0.25)
    assert meter.result().units == 2 * 5 * 64


def test_windows_close_when_they_have_lasted_long_enough_and_a_pause_does_not_age_them() -> None:
    clock = Clock()
    meter = meter_of(clock)
    meter.resume()
    run(meter, clock, [0.375] * 2)
    meter.pause()
    clock.now += 50.0
    meter.resume()
    assert len(meter.windows) == 0
    run(meter, clock, [0.375])
    assert len(meter.windows) == 1
    assert (meter.result().units, meter.result().seconds) == (3 * 64, 1.125)


def test_only_whole_windows_count_unless_there_is_none() -> None:
    whole, part = measured([0.5, 0.5, 0.25]), measured([0.25])
    assert (whole.windows, whole.steps, whole.seconds) == (1, 2, 1.0)
    assert (part.windows, part.steps, part.seconds) == (0, 1, 0.25)
    assert (part.low, part.high) == (None, None)


def test_the_rate_is_images_by_seconds_and_not_the_mean_of_the_windows_rates() -> None:
    result = measured([1.0, 2.0, 4.0])
    assert result.windows == 3
    assert result.units_per_second == 3 * 64 / 7


def test_the_device_is_waited_for_at_the_edges_only_and_the_wait_counts() -> None:
    clock = Clock(waiting=0.25)
    meter = meter_of(clock, window_seconds=100.0)
    meter.resume()
    run(meter, clock, [0.5] * 20)
    meter.pause()
    assert clock.synchronizations == 2
    assert meter.result().seconds == 10.25


def test_no_measured_step_is_an_error_and_not_a_rate_of_zero() -> None:
    with pytest.raises(ValueError, match="no step was measured after 3 of warm-up"):
        measured([1.0] * 3, max_warmup_steps=3)


def test_a_result_on_the_way_changes_nothing() -> None:
    results = []
    for asked in (False, True):
        clock = Clock()
        meter = meter_of(clock, window_seconds=2.0)
        meter.resume()
        for _ in range(7):
            run(meter, clock, [0.75])
            if asked:
                meter.result()
                meter.settled()
        results.append(meter.result())
    assert results[0] == results[1]


# --- warm-up ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("warmup", "steps_left_out"),
    [
        pytest.param([], 4, id="nothing to warm up"),
        pytest.param([1.0], 5, id="a slow first step"),
        pytest.param([60.0, 1.0], 6, id="compilation first"),
        pytest.param([1.0, 0.5, 0.375, 0.34, 0.3, 0.26], 9, id="slowly faster"),
    ],
)
def test_warmup_ends_when_steps_no_longer_get_faster(warmup: list[float], steps_left_out: int) -> None:
    result = measured([*warmup, *[0.25] * 20], max_warmup_steps=20)
    assert result.warmup_steps == steps_left_out
    assert result.units_per_second == 256.0


def test_batches_that_come_in_bursts_end_warmup_too() -> None:
    assert measured([0.7, 0.1, 0.1, 0.1] * 10, max_warmup_steps=20).warmup_steps <= 6


def test_short_steps_warm_up_for_half_a_second() -> None:
    assert measured([0.01] * 400, max_warmup_steps=200).warmup_steps == pytest.approx(51, abs=1)


def test_warmup_takes_no_more_steps_or_time_than_allowed() -> None:
    ever_faster = [100.0 * 0.8**i for i in range(30)]
    assert measured(ever_faster, max_warmup_steps=20).warmup_steps == 2  # the second step took longer than 3 s
    assert measured([x / 1000 for x in ever_faster], max_warmup_steps=20).warmup_steps == 20


def test_warmup_lasts_until_the_loaders_buffers_are_empty() -> None:
    clock = Clock()
    meter = meter_of(clock, max_warmup_steps=20, min_warmup_steps=12)
    meter.resume()
    run(meter, clock, [0.125] * 8 + [0.25] * 12)
    assert meter.result().units_per_second == 256.0


def test_each_step_of_warmup_is_waited_for_and_warmup_goes_on_over_a_pause() -> None:
    clock = Clock()
    meter = meter_of(clock, max_warmup_steps=3)
    for _ in range(2):
        meter.resume()
        run(meter, clock, [1.0] * 2)
        meter.pause()
        clock.now += 50.0
    assert clock.synchronizations >= 3
    assert (meter.result().steps, meter.result().seconds) == (1, 1.0)


# --- disturbance ------------------------------------------------------------------------------------------------------


def contended(windows: str, cores: int = 1, taken: float = 0.3) -> Throughput:
    """Of windows of a second; in those marked "x" others take a core for a while, and half the steps are done."""
    clock = Clock()
    meter = meter_of(clock, cores=cores)
    meter.resume()
    for kind in windows:
        clock.interference += taken if kind == "x" else 0.0
        run(meter, clock, [0.25] * 4 if kind == "." else [0.5] * 2)
    return meter.result()


def test_windows_in_which_others_took_the_cores_are_left_out_and_counted() -> None:
    result = contended(".x..xx.")
    assert (result.windows, result.contended_windows, result.contended) == (4, 3, False)
    assert result.units_per_second == pytest.approx(256.0)


def test_where_too_few_windows_are_quiet_the_least_contended_count_too_and_the_result_says_so() -> None:
    shares = [0.9, 0.0, 0.5, 0.2, 0.3]
    some = [Window(units=i, steps=1, seconds=1.0, interference_seconds=share) for i, share in enumerate(shares)]
    least = throughput(some, 1)
    assert (least.units, least.contended_windows, least.contended) == (1 + 3 + 4, 2, True)


def test_what_others_took_widens_the_interval_of_a_contended_rate() -> None:
    alone = contended("......")
    for taken in (0.2, 0.5):
        result = contended("xxxxxx", taken=taken)
        assert result.units_per_second * (1 + 1.9 * taken) < (result.high or 0)
    assert (alone.high or 0) < 1.1 * alone.units_per_second


def test_the_share_that_others_may_take_is_of_all_cores() -> None:
    assert contended("xxxx", cores=1, taken=0.2).contended
    assert not contended("xxxx", cores=4, taken=0.2).contended


def test_windows_in_which_the_cores_were_slow_are_left_out_and_asking_takes_no_measured_time() -> None:
    clock, slowdowns = Clock(), iter([1.0, 1.0, 1.5, 1.0, 1.4])

    def slowdown() -> float:
        clock.now += 7
        return next(slowdowns)

    meter = ThroughputMeter(
        max_warmup_steps=0, synchronize=clock.synchronize, window_seconds=1.0, clock=clock, slowdown=slowdown
    )
    meter.resume()
    run(meter, clock, [0.5, 0.5, 0.5, 0.5, 0.9, 0.9, 0.5, 0.5, 0.9, 0.9], images=64)
    result = meter.result()
    assert (result.windows, result.contended_windows, result.contended) == (3, 2, False)
    assert result.units_per_second == pytest.approx(128)


def test_the_reference_step_is_asked_after_the_first_windows_and_takes_no_measured_time() -> None:
    clock, asked = Clock(), []

    def reference_step() -> float:
        asked.append(clock.now)
        clock.now += 7
        return 7.0

    meter = ThroughputMeter(
        max_warmup_steps=0,
        synchronize=clock.synchronize,
        window_seconds=1.0,
        clock=clock,
        reference_step=reference_step,
    )
    meter.resume()
    run(meter, clock, [0.5] * 2 * (REFERENCE_WINDOWS + 2))
    assert meter.result().seconds == REFERENCE_WINDOWS + 2
    assert len(asked) == REFERENCE_WINDOWS
    assert [w.reference_seconds for w in meter.windows] == [7.0] * REFERENCE_WINDOWS + [None] * 2


def test_what_others_do_in_a_pause_disturbs_nobody() -> None:
    clock = Clock()
    meter = meter_of(clock)
    for _ in range(4):
        meter.resume()
        run(meter, clock, [0.5] * 2)
        meter.pause()
        clock.interference += 10.0
    assert not meter.result().contended


# --- the interval, in simulated worlds --------------------------------------------------------------------------------

World = Callable[[random.Random], Iterator[tuple[float, float]]]  # seconds of each step, and how much others took of it


def noisy(correlation: float, spread: float = 0.1) -> World:
    """Step times whose noise decays by so much from one step to the next; a window has about ten steps."""

    def steps(rng: random.Random) -> Iterator[tuple[float, float]]:
        x = rng.gauss(0, 1)
        while True:
            x = correlation * x + math.sqrt(1 - correlation**2) * rng.gauss(0, 1)
            yield 0.05 * math.exp(spread * x), 0.0

    return steps


def bursts(rng: random.Random) -> Iterator[tuple[float, float]]:
    """Batches come three at a time."""
    while True:
        yield from [(0.12 * math.exp(0.2 * rng.gauss(0, 1)), 0.0), (0.02, 0.0), (0.02, 0.0)]


def shared(rng: random.Random) -> Iterator[tuple[float, float]]:
    """Others come for a second in four, and make steps three times as long."""
    while True:
        for share, slower, mean in ((0.0, 1.0, 3.0), (0.6, 3.0, 1.0)):
            left = rng.expovariate(1 / mean)
            while left > 0:
                seconds = slower * 0.05 * math.exp(0.1 * rng.gauss(0, 1))
                left -= seconds
                yield seconds, share * seconds


WORLDS = {
    "constant": noisy(0.0, spread=1e-6),
    "noisy": noisy(0.0),
    "correlated": noisy(0.9),
    "bursts": bursts,
    "shared": shared,
}
MOSTLY_SLOW = [pytest.param(world, marks=[] if world == "shared" else pytest.mark.slow) for world in WORLDS]


def probes(world: World, count: int, windows: int, seed: int = 0) -> list[Throughput]:
    """One after the other, of so many quiet windows each."""
    steps, clock, found = world(random.Random(seed)), Clock(), []
    for _ in range(count):
        meter = meter_of(clock, window_seconds=0.5)
        meter.resume()
        while len(meter.uncontended_windows) < windows:
            seconds, interference = next(steps)
            clock.now += seconds
            clock.interference += interference
            meter.step(64)
        found.append(meter.result())
    return found


@pytest.mark.parametrize("world", MOSTLY_SLOW)
def test_the_interval_covers_a_ten_times_longer_measurement_in_nine_tries_of_ten(world: str) -> None:
    found = probes(WORLDS[world], count=1010, windows=8)
    covered = 0
    for i, probe in enumerate(found[:-10]):
        after = found[i + 1 : i + 11]
        reference = sum(t.units for t in after) / sum(t.seconds for t in after)
        covered += (probe.low or math.inf) <= reference <= (probe.high or -math.inf)
    assert covered >= 0.9 * 1000


@pytest.mark.parametrize("world", MOSTLY_SLOW)
def test_two_measurements_of_the_same_differ_in_at_most_one_try_of_twenty(world: str) -> None:
    found = probes(WORLDS[world], count=2000, windows=8)
    assert sum(differ(a, b) for a, b in zip(found[::2], found[1::2], strict=True)) <= 0.05 * 1000


def test_a_rate_that_is_a_tenth_higher_is_seen_to_be() -> None:
    faster = probes(noisy(0.5, spread=0.02), 1, 8)[0]
    slower = measured(1.1 * seconds for seconds, _ in itertools.islice(noisy(0.5, 0.02)(random.Random(1)), 100))
    assert differ(faster, slower)
    assert differ(slower, faster)


def test_nothing_differs_from_a_rate_without_interval() -> None:
    assert not differ(measured([0.25]), measured([0.5] * 20))


def test_nothing_differs_from_a_contended_rate() -> None:
    assert differ(contended("......"), measured([0.5] * 20))
    assert not differ(contended("xxxxxx"), measured([0.05] * 400))


def test_a_rate_that_drifts_is_less_sure_than_one_that_scatters_as_much() -> None:
    rising = [1.0 + 0.01 * i for i in range(16)]
    scattered = random.Random(0).sample(rising, len(rising))
    assert (measured(rising).sampling_error or 0) > 2 * (measured(scattered).sampling_error or 0)


def test_windows_that_agree_perfectly_still_leave_the_drift_between_measurements() -> None:
    result = measured([1.0] * 10)
    assert result.low == pytest.approx(64 * math.exp(-1.96 * TYPICAL_DRIFT))
    assert result.high == pytest.approx(64 * math.exp(1.96 * TYPICAL_DRIFT))


@pytest.mark.parametrize("windows", [1, 2])
def test_one_or_two_windows_are_no_ground_for_an_interval(windows: int) -> None:
    result = measured([1.0, 1.5][:windows])
    assert (result.windows, result.low, result.high) == (windows, None, None)


def test_the_error_of_independent_windows_is_that_of_a_mean() -> None:
    seconds = [1.0, 1.2, 1.3, 1.1, 1.0, 1.3, 1.2, 1.0, 1.1, 1.2, 1.3, 1.0] * 6
    expected = statistics.stdev(seconds) / statistics.fmean(seconds) / math.sqrt(len(seconds))
    assert measured(seconds).sampling_error == pytest.approx(expected, rel=0.1)


def test_a_probe_has_settled_when_quiet_windows_agree() -> None:
    clock = Clock()
    meter = meter_of(clock)
    meter.resume()
    asked = []
    for _ in range(8):
        run(meter, clock, [1.0])
        asked.append(meter.settled())
    assert asked == [False] * 5 + [True] * 3


def test_a_probe_has_not_settled_while_windows_disagree_or_others_run() -> None:
    clock = Clock()
    meter = meter_of(clock)
    meter.resume()
    for _ in range(20):
        clock.interference += 0.5
        run(meter, clock, [1.0])
        assert not meter.settled()
    for i in range(10):
        run(meter, clock, [1.0 + 0.5 * (i % 3)])
        assert not meter.settled()


@pytest.mark.parametrize(("degrees_of_freedom", "t"), [(1, 12.706), (4, 2.776), (7, 2.365), (20, 2.086), (1e9, 1.96)])
def test_students_t_is_as_in_tables(degrees_of_freedom: float, t: float) -> None:
    assert student_t(degrees_of_freedom) == pytest.approx(t, rel=0.01)


def windows_of(seconds: float) -> list[Window]:
    return [Window(units=64, steps=1, seconds=seconds)] * 10


def test_no_interval_reaches_below_zero_however_much_the_rate_varies() -> None:
    result = throughput(windows_of(0.5), 1, Drift(2.0, 10))
    assert 0 < result.low < result.units_per_second < result.high


def test_the_interval_covers_the_drift_that_is_known_of_the_machine() -> None:
    some = throughput(windows_of(0.5), 1, Drift(0.1, 10))
    assert (some.high or 0) / some.units_per_second == pytest.approx(math.exp(2.228 * 0.1))


def test_rates_that_a_steady_machine_tells_apart_are_one_on_a_machine_that_drifts() -> None:
    for drift, told_apart in ((Drift(0.005, 100), True), (UNKNOWN_DRIFT, True), (Drift(0.1, 100), False)):
        assert differ(throughput(windows_of(0.5), 1, drift), throughput(windows_of(0.55), 1, drift)) == told_apart
