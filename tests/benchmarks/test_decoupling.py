from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from decoupling import ratios, search

from search.advisor.advisor import Advisor
from search.advisor.proposal import Decision, Proposal


class Two:
    """Two settings; an epoch takes 10 s, a probe 1 s."""

    name, max_epoch = "toy:two", 2
    space: Mapping[str, tuple[Any, ...]] = {"fast": ("cat", [False, True])}

    def probe(self, config):
        return (2.0 if config["fast"] else 1.0), 1.0

    def curve(self, config):
        return [(epoch, 0.4 * epoch, self.probe(config)[0], 10.0 * epoch) for epoch in (1, 2)]

    def hv(self, points):
        return max(accuracy * rate for accuracy, rate in points) / 1.6


class Script(Advisor):
    """Proposes what it is given, and stops the trials in `stop`."""

    def __init__(self, *proposals: Proposal, stop: Sequence[str] = ()) -> None:
        self._proposals, self._stop = list(proposals), stop
        self.seen: list[Any] = []

    def propose(self):
        return self._proposals.pop(0) if self._proposals else None

    def observe(self, trial_id: str, epoch: int, metrics: Any, earlier_decision: str | None = None) -> Decision:
        self.seen.append((trial_id, epoch, metrics))
        return Decision.STOP if trial_id in self._stop else Decision.CONTINUE

    def finish(self, trial_id: str, state: str, metrics: object = None) -> None:
        self.seen.append((trial_id, state))


SLOW: dict[str, Any] = {"fast": False}
FAST: dict[str, Any] = {"fast": True}


def test_a_probe_costs_its_seconds_and_tells_the_rate_alone():
    script = Script(Proposal("a", FAST, "probe"), Proposal("b", FAST))
    assert search(Two(), script) == [(21.0, pytest.approx(1.0)), (21.0, pytest.approx(1.0))]
    assert script.seen[:2] == [("a", 0, {"throughput": 2.0}), ("a", "complete")]


def test_a_stopped_trial_costs_its_epochs_and_gives_no_point():
    script = Script(Proposal("a", FAST), Proposal("b", SLOW), stop=("a",))
    assert search(Two(), script) == [(30.0, pytest.approx(0.5)), (30.0, pytest.approx(0.5))]


def test_the_time_ends_a_search():
    assert search(Two(), Script(Proposal("a", SLOW), Proposal("b", FAST)), most_seconds=30.0)[-1][1] == 0.5


def test_ratio_is_the_time_to_the_same_hypervolume():
    coupled = [(40.0, 0.25), (80.0, 0.5), (100.0, 0.5)]
    figures = ratios([(coupled, [(10.0, 0.25), (20.0, 0.5), (100.0, 0.75)]), (coupled, [(100.0, 0.25)])])
    assert figures["ratio"] == pytest.approx((0.2 + 1.0) / 2)
    assert figures["ratio_to_last_gain"] == pytest.approx((0.25 + 1.0) / 2)
    assert figures["never_reached"] == 1
