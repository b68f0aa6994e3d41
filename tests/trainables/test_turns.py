"""Turns: configurations train in short turns in one process group, and report their rates round by round."""

import itertools
import math
import multiprocessing
import time
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.trainables.ranked import on_ranks
from trainables import turns
from trainables.contract import AlternativeError, Data, Measurement, PeerLostError, Resources
from trainables.local_worker import LocalWorker
from trainables.machine import allocator
from trainables.samples.paused_loaders import PausedLoaders
from trainables.strategy_table import STRATEGIES
from trainables.vgg19_cifar10 import trainable as vgg19_cifar10
from trainables.vgg19_settings import Vgg19Settings

TINY = {"width": 0.01, "batch_size": 24, "conv_kernel": "library"}


def rounds(number: int, folder: Path, data: Data, *configs: dict[str, Any], **worker: Any) -> list[Measurement]:
    local = LocalWorker(folder, 1, data, **worker, listener=lambda measurement: measurement.epoch < number)
    vgg19_cifar10.turns([{**TINY, **config} for config in configs], local)
    return local.reported


def of_a_rank(rank: int, world_size: int, folder: Path, data: Data) -> list[int]:
    local = {"rank": rank, "world_size": world_size, "resources": Resources(1)}
    found = rounds(2, folder, data, {"strategy": "ddp"}, {"strategy": "ring_allreduce"}, **local)
    return [len(measurement.metrics) for measurement in found]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_SECONDS", 0.02)
    monkeypatch.setattr(turns, "WARMUP_SECONDS", 0.02)


def test_rounds_have_a_rate_of_each_configuration_until_a_report_says_stop(folder: Path, few: Data) -> None:
    found = rounds(3, folder, few, {}, {"batch_size": 48})
    assert [measurement.epoch for measurement in found] == [1, 2, 3]
    for measurement in found:
        assert list(measurement.metrics) == ["rate_0", "rate_1"]
        assert all(rate > 0 for rate in measurement.metrics.values())
    assert not list(folder.iterdir())


def test_the_one_that_does_more_work_per_sample_is_slower_in_the_mean(folder: Path, few: Data) -> None:
    found = rounds(4, folder, few, {}, {"width": 0.25})
    assert fmean(math.log(m.metrics["rate_0"] / m.metrics["rate_1"]) for m in found) > 0.3


def test_each_turn_has_the_threads_and_the_allocator_of_its_configuration(
    folder: Path, few: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, seen = torch.get_num_threads(), []
    run, options = turns._Runner._seconds_of, []

    def recorded(self: turns._Runner, steps: int) -> float:
        seen.append(torch.get_num_threads())
        return run(self, steps)

    monkeypatch.setattr(turns._Runner, "_seconds_of", recorded)
    monkeypatch.setattr(allocator, "_set_options", lambda values: options.append(values) or True)
    rounds(1, folder, few, {"threads": 1, "allocator": "system"}, {"threads": 2}, resources=Resources(2))
    assert set(seen) == {1, 2}
    assert options[:2] == [allocator.RETAIN, allocator.SYSTEM]
    assert torch.get_num_threads() == before


def test_a_step_is_captured_before_the_first_turn(folder: Path) -> None:
    """However long a step takes: DDP times its first ten, and the next but one is captured."""
    settings, steps = Vgg19Settings(strategy="ddp", cuda_graphs=True), list[int]()
    instruments = SimpleNamespace(timeline=None, units_per_step=1)
    training: Any = SimpleNamespace(
        settings=settings,
        worker=LocalWorker(folder, resources=Resources(1)),
        device=torch.device("cpu"),
        step=lambda *_: steps.append(1) or time.sleep(0.02),
        instruments=instruments,
    )
    before = torch.get_num_threads()
    turns._Runner(training, itertools.repeat((None, None))).warm_up()
    torch.set_num_threads(before)
    assert len(steps) > STRATEGIES["ddp"].eager_steps


@pytest.mark.parametrize(
    ("message", "kind"),
    [("Timed out waiting 1000ms for recv operation", PeerLostError), ("not enough memory", AlternativeError)],
)
def test_a_configuration_is_not_blamed_for_a_rank_that_is_silent(message: str, kind: type[Exception]) -> None:
    with pytest.raises(kind), turns._blamed_on(1):
        raise RuntimeError(message)


@pytest.mark.slow
def test_the_ranks_make_equally_many_steps(folder: Path, few: Data) -> None:
    assert on_ranks(of_a_rank, 2, folder, few) == [[2, 2], [2, 2]]


def counting(counter: Any) -> None:
    while True:
        counter.value += 1


def test_loader_processes_run_in_the_turns_of_their_training_only() -> None:
    loaders, context = PausedLoaders(), multiprocessing.get_context("fork")
    counters = [context.Value("q", 0, lock=False) for _ in range(2)]
    children = [context.Process(target=counting, args=(counter,), daemon=True) for counter in counters]

    def moved() -> list[bool]:
        time.sleep(0.02)  # signals are on their way
        before = [counter.value for counter in counters]
        time.sleep(0.2)
        return [counter.value > value for counter, value in zip(counters, before, strict=True)]

    try:
        for place, child in enumerate(children):
            with loaders.turn(place):
                child.start()
        assert moved() == [False, False]
        with loaders.turn(1):
            assert moved() == [False, True]
        assert moved() == [False, False]
        loaders.close()
        assert moved() == [True, True]
    finally:
        for child in children:
            child.kill()
            child.join()


def test_each_configuration_has_its_own_loader_processes_and_all_end(folder: Path, few: Data) -> None:
    """A process that is stopped would not end when it is told to; it would be killed after some seconds each."""
    one, other = {"loader": "workers", "num_workers": 1}, {"loader": "workers", "num_workers": 2}
    found = rounds(3, folder, few, one, other, {"loader": "memory"}, resources=Resources(2))
    assert [len(measurement.metrics) for measurement in found] == [3, 3, 3]
    assert multiprocessing.active_children() == []


def test_a_turn_has_a_step_for_each_loader_process(folder: Path, few: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that started together deliver together: a turn of fewer steps would often miss the wait."""
    run, steps = turns._Runner._seconds_of, list[int]()
    monkeypatch.setattr(turns._Runner, "_seconds_of", lambda self, n: steps.append(n) or run(self, n))
    monkeypatch.setattr(turns, "TURN_SECONDS", 1e-6)
    rounds(2, folder, few, {"loader": "workers", "num_workers": 2}, resources=Resources(2))
    assert steps[0] == 4  # the buffers that were filled before
    assert steps[-4:] == [1, 2, 1, 2]
