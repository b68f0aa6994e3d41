"""The host runs ahead of the device, but not for ever."""

from __future__ import annotations

import torch

from trainables.machine.steps_in_flight import MAX_STEPS, StepsInFlight


class Device:
    """Knows which of its edges was waited for."""

    def __init__(self) -> None:
        self.asked = 0
        self.waited_for: list[int] = []

    def edge(self) -> Edge:
        self.asked += 1
        return Edge(self, self.asked)


class Edge:
    def __init__(self, device: Device, number: int) -> None:
        self._device, self._number = device, number

    def synchronize(self) -> None:
        self._device.waited_for.append(self._number)


def test_the_host_waits_for_the_step_that_lies_that_far_back_and_for_no_later_one() -> None:
    device = Device()
    steps_in_flight = StepsInFlight(torch.device("cuda"), device.edge)
    for _ in range(MAX_STEPS + 3):
        steps_in_flight.step()
    assert device.waited_for == [1, 2, 3]


def test_on_a_cpu_nothing_is_waited_for() -> None:
    StepsInFlight(torch.device("cpu")).step()
