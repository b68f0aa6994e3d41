"""Stage times, under a clock that is moved by hand, and in a real step."""

import pytest
import torch
from torch import nn

from tests.trainables.shapes import VGG_SHAPE
from trainables.setting_check import checked
from trainables.stages import Timeline
from trainables.strategies import get_strategy
from trainables.vgg19_cifar10 import trainable as vgg19_cifar10
from trainables.vgg19_settings import Vgg19Settings

CPU = torch.device("cpu")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_stage_is_the_time_since_the_mark_before_it_per_step() -> None:
    clock = Clock()
    timeline = Timeline(CPU, clock)
    timeline.start()
    for _ in range(2):
        clock.now += 3
        timeline.mark("load")
        clock.now += 1
        timeline.mark("forward")
        timeline.step()
    timeline.stop()
    assert timeline.steps == 2
    assert timeline.seconds_per_step() == {"load": 3, "forward": 1}


def test_a_stage_that_is_marked_twice_in_a_step_is_both_together() -> None:
    clock = Clock()
    timeline = Timeline(CPU, clock)
    timeline.start()
    for stage in ("load", "transfer", "load"):
        clock.now += 2
        timeline.mark(stage)
    timeline.step()
    timeline.stop()
    assert timeline.seconds_per_step() == {"load": 4, "transfer": 2}


def test_what_happens_while_it_is_off_is_in_no_stage() -> None:
    clock = Clock()
    timeline = Timeline(CPU, clock)
    timeline.mark("load")
    timeline.step()
    assert (timeline.steps, timeline.seconds_per_step()) == (0, {})
    for seconds in (1, 3):
        timeline.start()
        clock.now += seconds
        timeline.mark("forward")
        timeline.step()
        timeline.stop()
        clock.now += 100
        timeline.mark("backward")
    assert timeline.seconds_per_step() == {"forward": 2}


def test_the_stages_of_a_real_step_are_marked_in_order_and_add_up_to_it() -> None:
    settings = Vgg19Settings(**checked({"width": 0.01, "batch_size": 8}, vgg19_cifar10.PARAMETERS or {}))
    step = get_strategy("single").build(
        nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10)), settings, VGG_SHAPE, CPU
    )
    clock = Clock()
    readings: list[float] = []

    def ticking() -> float:
        clock.now += 1
        readings.append(clock.now)
        return clock.now

    timeline = Timeline(CPU, ticking)
    timeline.start()
    step(torch.zeros(8, 3, 32, 32), torch.zeros(8, dtype=torch.int64), timeline)
    timeline.step()
    timeline.stop()
    stages = timeline.seconds_per_step()
    assert list(stages) == ["forward", "backward", "update"]
    assert sum(stages.values()) == pytest.approx(readings[-1] - readings[0])


def test_the_time_of_the_host_is_that_of_launching_and_known_on_a_gpu_only() -> None:
    clock = Clock()
    timeline = Timeline(CPU, clock)
    timeline._cuda = True
    timeline._edge = lambda: clock.now  # type: ignore[method-assign]
    timeline.start()
    for stage, seconds in (("load", 5), ("forward", 1), ("backward", 2), ("update", 3)):
        clock.now += seconds
        timeline.mark(stage)  # type: ignore[arg-type]
    timeline.step()
    assert timeline.host_seconds_per_step() == 6
    timeline._cuda = False
    assert timeline.host_seconds_per_step() is None
