"""The meter, under a clock that stands still unless it is moved."""

import statistics
from dataclasses import dataclass

import pytest

from trainables.throughput import ThroughputMeter


@dataclass
class Clock:
    """Waiting for the device takes `waiting` seconds."""

    now: float = 0.0
    synchronizations: int = 0
    waiting: float = 0.0

    def __call__(self) -> float:
        return self.now

    def synchronize(self) -> None:
        self.synchronizations += 1
        self.now += self.waiting


def meter_of(clock: Clock, warmup_steps: int = 0, window_seconds: float = 1.0) -> ThroughputMeter:
    return ThroughputMeter(
        warmup_steps=warmup_steps, synchronize=clock.synchronize, window_seconds=window_seconds, clock=clock
    )


def run(meter: ThroughputMeter, clock: Clock, steps: int, seconds: float, images: int = 64) -> None:
    for _ in range(steps):
        clock.now += seconds
        meter.step(images)


@pytest.mark.parametrize("warmup_steps", [0, 1, 3])
def test_warmup_is_left_out(warmup_steps: int) -> None:
    clock = Clock()
    meter = meter_of(clock, warmup_steps)
    meter.resume()
    run(meter, clock, warmup_steps, seconds=100.0)
    run(meter, clock, 10, seconds=0.5)
    result = meter.result()
    assert (result.images, result.steps, result.seconds, result.warmup_steps) == (640, 10, 5.0, warmup_steps)
    assert result.images_per_second == 128.0


def test_the_wait_for_the_first_batch_is_in_and_what_lies_in_a_pause_is_out() -> None:
    clock = Clock()
    meter = meter_of(clock)
    for _ in range(2):  # epochs
        meter.resume()
        clock.now += 3.0  # the first batch is late
        run(meter, clock, 4, seconds=0.25)
        meter.pause()
        clock.now += 50.0  # evaluation, checkpoint
    assert meter.result().seconds == 2 * (3.0 + 1.0)


def test_warmup_goes_on_over_a_pause() -> None:
    clock = Clock()
    meter = meter_of(clock, warmup_steps=3)
    for _ in range(2):
        meter.resume()
        run(meter, clock, 2, seconds=1.0)
        meter.pause()
        clock.now += 50.0
    assert (meter.result().steps, meter.result().seconds) == (1, 1.0)


def test_windows_close_when_they_have_lasted_long_enough_and_a_pause_does_not_age_them() -> None:
    clock = Clock()
    meter = meter_of(clock, window_seconds=1.0)
    meter.resume()
    run(meter, clock, 2, seconds=0.375)
    meter.pause()
    clock.now += 50.0
    meter.resume()
    run(meter, clock, 2, seconds=0.375)  # the first of these completes the window
    result = meter.result()
    assert result.window_rates == (3 * 64 / 1.125,)
    assert (result.images, result.seconds) == (4 * 64, 1.5)


def test_a_step_longer_than_a_window_is_a_window() -> None:
    clock = Clock()
    meter = meter_of(clock, window_seconds=0.5)
    meter.resume()
    for seconds in (1.0, 2.0, 4.0):
        run(meter, clock, 1, seconds)
    result = meter.result()
    assert result.num_windows == 3
    assert result.images_per_second_std == pytest.approx(statistics.stdev([64.0, 32.0, 16.0]))
    assert result.images_per_second == pytest.approx(3 * 64 / 7)


def test_the_spread_of_less_than_two_windows_is_unknown() -> None:
    clock = Clock()
    meter = meter_of(clock)
    meter.resume()
    run(meter, clock, 1, seconds=1.0)
    assert meter.result().images_per_second_std is None


def test_the_device_is_waited_for_at_the_edges_only_and_the_wait_counts() -> None:
    clock = Clock(waiting=0.25)
    meter = meter_of(clock, window_seconds=100.0)
    meter.resume()
    run(meter, clock, 20, seconds=0.5)
    meter.pause()
    assert clock.synchronizations == 2
    assert meter.result().seconds == 10.25


def test_no_measured_step_is_an_error_and_not_a_rate_of_zero() -> None:
    clock = Clock()
    meter = meter_of(clock, warmup_steps=3)
    meter.resume()
    run(meter, clock, 3, seconds=1.0)
    with pytest.raises(ValueError, match="no step was measured after 3 of warm-up"):
        meter.result()


def test_a_result_on_the_way_changes_nothing() -> None:
    results = []
    for asked in (False, True):
        clock = Clock()
        meter = meter_of(clock, window_seconds=2.0)
        meter.resume()
        for _ in range(7):
            run(meter, clock, 1, seconds=0.75)
            if asked:
                meter.result()
        results.append(meter.result())
    assert results[0] == results[1]
