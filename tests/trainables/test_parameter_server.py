"""The asynchronous parameter server, which gives other losses than `single`; and staleness by itself."""

import os
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist

from tests.trainables.ranked import on_ranks
from tests.trainables.shapes import VGG_SHAPE
from tests.trainables.test_strategies import CPU, OFF, TOLERANCE, assert_same_weights, settings_of, several, trained
from trainables.contract import Data
from trainables.local_worker import LocalWorker
from trainables.network.vgg import vgg
from trainables.parallel import ranks
from trainables.plan import share_of
from trainables.strategies import get_strategy, parameter_server
from trainables.strategies.parameter_server import Staleness
from trainables.vgg19_cifar10 import trainable as vgg19_cifar10

ASYNCHRONOUS: dict[str, Any] = {"server": "asynchronous"}
PICTURES = Data("generated", train_images=240, val_images=40)


def repeated(rank: int, world_size: int, config: dict[str, Any]) -> tuple[list[float], dict[str, float]]:
    """Losses of one batch seen again and again, with batch normalisation; what the strategy tells."""
    settings = settings_of("parameter_server", **ASYNCHRONOUS, **config)
    strategy = get_strategy("parameter_server")
    torch.manual_seed(0)
    step = strategy.build(vgg(width=settings.width), settings, VGG_SHAPE, CPU)
    images, labels = torch.randn(16, 3, 32, 32), torch.arange(16) % 10
    first, last = share_of("parameter_server", rank, world_size).within(16)
    step.set_learning_rate(settings.learning_rate)
    losses = torch.stack([step(images[first:last], labels[first:last], OFF) for _ in range(30)])
    step.gather()
    return ranks.summed(losses, world_size).tolist(), step.metrics()


@pytest.mark.parametrize(
    "config",
    [{"learning_rate": 0.02}, pytest.param({"optimizer": "adamw", "learning_rate": 0.001}, marks=pytest.mark.slow)],
    ids=str,
)
def test_asynchronous_workers_learn_a_batch_with_stale_gradients(config: dict[str, Any]) -> None:
    """Three workers: while one computes, others update."""
    answers = on_ranks(repeated, 4, config)
    losses, metrics = answers[0]
    assert losses[-1] < 0.6 * losses[0]
    assert 0 < metrics["gradient_staleness_mean"] <= metrics["gradient_staleness_max"]
    assert metrics["gradient_staleness_mean"] <= 2  # the updates of a step, less its own
    assert all(told == {} for _, told in answers[1:])  # the server alone knows


def test_one_asynchronous_worker_is_single() -> None:
    """Nobody is there whom it does not wait for."""
    expected, outcomes = trained("single", 0, 1), several("parameter_server", 2, **ASYNCHRONOUS)
    assert outcomes[0].losses == pytest.approx(expected.losses, abs=TOLERANCE)
    assert_same_weights(outcomes[0].model, expected.model, atol=TOLERANCE)


@pytest.mark.slow
def test_ranks_of_an_asynchronous_server_end_with_the_same_weights_and_their_checkpoint_goes_on() -> None:
    outcomes = several("parameter_server", 3, **ASYNCHRONOUS)
    for outcome in outcomes:
        assert_same_weights(outcome.model, outcomes[0].model, atol=0.0)
    assert outcomes[0].checkpoint["optimizer"].keys() == dict(outcomes[0].model).keys()
    assert trained("single", 0, 1, checkpoint=outcomes[0].checkpoint).losses[0] != trained("single", 0, 1).losses[0]


def moved(rank: int, world_size: int, server: str) -> torch.Tensor:
    """How far one step brings the first layer's weights, so short that gradients hardly change on the way."""
    settings = settings_of("parameter_server", server=server, momentum=0.0, weight_decay=0.1)
    strategy = get_strategy("parameter_server")
    torch.manual_seed(0)
    step = strategy.build(vgg(width=settings.width, norm=False).double(), settings, VGG_SHAPE, CPU)
    weights = next(step.model.parameters())
    before = weights.detach().clone()
    images, labels = torch.randn(16, 3, 32, 32, dtype=torch.float64), torch.arange(16) % 10
    first, last = share_of("parameter_server", rank, world_size).within(16)
    step.set_learning_rate(1e-6)
    step(images[first:last], labels[first:last], OFF)
    step.gather()
    return weights.detach() - before


def test_in_a_step_of_several_updates_the_weights_go_as_far_as_by_one() -> None:
    """And decay as much."""
    expected, found = on_ranks(moved, 3, "synchronous")[0], on_ranks(moved, 3, "asynchronous")[0]
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-12)


def reported(rank: int, world_size: int, folder: Path) -> dict[str, float]:
    config = {"strategy": "parameter_server", "world_size": world_size, "width": 0.01, "batch_size": 12, **ASYNCHRONOUS}
    worker = LocalWorker(folder, data=PICTURES, rank=rank, world_size=world_size)
    vgg19_cifar10.train(config, worker)
    return dict(worker.reported[-1].metrics)


@pytest.mark.slow
def test_staleness_and_imbalance_are_among_the_metrics_of_a_trial(tmp_path: Path) -> None:
    metrics = on_ranks(reported, 2, tmp_path)[0]
    assert metrics["gradient_staleness_mean"] == metrics["gradient_staleness_max"] == 0
    assert metrics["memory_imbalance"] >= 1
    assert set(metrics) <= set(vgg19_cifar10.METRICS or {})


def test_staleness_is_what_others_updated_since_the_weights_were_read() -> None:
    staleness = Staleness()
    assert staleness.metrics() == {}
    for worker in (1, 1, 2, 1):  # 0, 0, 2 and 1 updates by others
        staleness.update(worker)
    assert staleness.metrics() == {"gradient_staleness_mean": 0.75, "gradient_staleness_max": 2.0}
    staleness.all_read()
    staleness.update(2)
    assert staleness.metrics()["gradient_staleness_mean"] == 0.6


def open_files(rank: int, world_size: int) -> list[int]:
    """Numbers of open files after each of three trials; there is no GPU whose memory could be pinned."""
    counts = []
    with mock.patch.object(torch, "empty_like", lambda vector, **_: vector.clone()):
        for _ in range(3):
            parameter_server._Post(torch.zeros(4), through_host=True)
            dist.barrier()
            counts.append(len(os.listdir("/proc/self/fd")))
    return counts


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files are counted on Linux")
def test_all_trials_of_a_process_send_through_one_group() -> None:
    for counts in on_ranks(open_files, 2):
        assert counts[1] == counts[2]
