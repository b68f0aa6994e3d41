"""What a measurement tells about drift, and whether that is enough for intervals that hold, on simulated machines."""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from trainables.measure.drift import RateRecord, drift_of
from trainables.measure.repeats import rates_by_part, reference_rate
from trainables.measure.throughput import Throughput, Window, differ, throughput


def windows(
    count: int, seconds: float = 0.5, *, reference_seconds: float | None = None, interference: float = 0.0
) -> list[Window]:
    return [
        Window(
            units=64, steps=1, seconds=seconds, interference_seconds=interference, reference_seconds=reference_seconds
        )
    ] * count


@pytest.mark.parametrize(("count", "parts"), [(0, 0), (2, 0), (3, 1), (23, 1), (24, 2), (400, 8)])
def test_a_measurement_tells_a_level_for_each_part_of_it_as_long_as_a_probe(count: int, parts: int) -> None:
    assert rates_by_part(windows(count), cores=1) == pytest.approx([128.0] * parts)


def test_the_parts_of_a_long_measurement_hold_each_window_once() -> None:
    assert rates_by_part(windows(12, 0.5) + windows(13, 1.0), cores=1) == pytest.approx([128.0, 64.0])


def test_contended_windows_tell_no_level_and_too_few_tell_none() -> None:
    others = windows(20, 5.0, reference_seconds=5.0, interference=4.0)
    assert rates_by_part(others + windows(12), cores=1) == pytest.approx([128.0])
    assert reference_rate(others + windows(3, reference_seconds=0.5), cores=1) == [2.0]
    assert rates_by_part(others + windows(2), cores=1) == []
    assert rates_by_part(windows(2), cores=1) == reference_rate(windows(2, reference_seconds=1.0), cores=1) == []


def test_a_burst_during_one_step_of_the_reference_step_is_not_drift() -> None:
    some = [*windows(4, reference_seconds=0.5), *windows(1, reference_seconds=50.0)]
    assert reference_rate(some, cores=1) == [2.0]


@dataclass(frozen=True)
class Jumping:
    """A machine whose rates jump and stay for about so many probes; the reference step feels it `sensitivity` times."""

    deviation: float
    stay: float
    sensitivity: float = 1.0

    def probes(self, count: int, seed: int = 0) -> Iterator[list[Window]]:
        rng = random.Random(seed)
        level = rng.gauss(0, self.deviation)
        for _ in range(count):
            if rng.random() < 1 / self.stay:
                level = rng.gauss(0, self.deviation)
            yield [
                Window(
                    units=1000,
                    seconds=0.5 * math.exp(level + rng.gauss(0, 0.02)),
                    reference_seconds=0.01 * math.exp(self.sensitivity * level + rng.gauss(0, 0.05)),
                )
                for _ in range(10)
            ]


def known_by_the_reference_step(machine: Jumping, count: int) -> list[Throughput]:
    """Probes none of which is like another, each with the drift that those before it tell."""
    known: list[RateRecord] = []
    found = []
    for probe in machine.probes(count):
        found.append(throughput(probe, 1, drift_of(known[-128:])))
        known += [("reference_step", 0.0, math.log(rate)) for rate in reference_rate(probe, 1)]
    return found


@pytest.mark.parametrize("machine", [Jumping(0.1, 1), Jumping(0.1, 10), Jumping(0.15, 5, 1.2), Jumping(0.005, 10)])
def test_on_a_machine_whose_rates_jump_the_interval_covers_and_repeats_seldom_differ(machine: Jumping) -> None:
    found = known_by_the_reference_step(machine, 1010)
    covered = 0
    for i, probe in enumerate(found[:-10]):
        after = found[i + 1 : i + 11]
        reference = sum(t.units for t in after) / sum(t.seconds for t in after)
        covered += (probe.low or math.inf) <= reference <= (probe.high or -math.inf)
    assert covered >= 0.9 * 1000
    differing = sum(differ(a, b) for a, b in zip(found, found[500:], strict=False))
    assert differing <= 0.07 * 510  # 5%, and two standard errors of so many pairs


def test_on_a_steady_machine_the_interval_gets_narrow() -> None:
    (*_, last) = known_by_the_reference_step(Jumping(0.001, 10), 100)
    assert (last.high or math.inf) / last.units_per_second - 1 < 0.05
