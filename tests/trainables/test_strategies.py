"""Every strategy gives the losses of `single`: the suite that a new one joins by its name in STRATEGIES."""

import multiprocessing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from trainables import ranks
from trainables.cifar10 import Pictures
from trainables.generated import generate
from trainables.loaders import Plan, training_batches
from trainables.settings import Settings, checked
from trainables.stages import Timeline
from trainables.strategies import STRATEGIES, get_strategy
from trainables.vgg import vgg19
from trainables.vgg19_cifar10 import PARAMETERS

CPU = torch.device("cpu")
OFF = Timeline(CPU)
STEPS = 12


def settings_of(strategy: str, **config: Any) -> Settings:
    assert PARAMETERS is not None
    given = {"batch_size": 16, "learning_rate": 0.05, "width": 0.125, "precision": "fp32", **config}
    return Settings(**checked({**given, "strategy": strategy}, PARAMETERS))


def losses_of(strategy: str, rank: int = 0, world_size: int = 1) -> tuple[list[float], float]:
    """Global losses of the first steps without batch normalisation, and the sum of the weights' sizes after them."""
    torch.manual_seed(0)
    settings = settings_of(strategy)
    pictures = Pictures(*generate(16 * STEPS, seed=0))
    plan = Plan(np.arange(len(pictures.labels)), settings.batch_size, 0, rank, world_size)
    step = get_strategy(strategy).build(vgg19(width=0.125, norm=False), settings, CPU)
    step.set_learning_rate(settings.learning_rate)
    batches = training_batches("memory", pictures, plan, CPU, num_workers=0, pin_memory=False)
    losses = torch.stack([step(images, labels, OFF) for images, labels in batches.epoch(1, OFF)])
    step.gather()
    weights = sum(float(p.detach().double().abs().sum()) for p in step.model.parameters())
    return ranks.mean(losses, world_size).tolist(), weights


def rank_process(strategy: str, rank: int, world_size: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world_size)
    torch.save(losses_of(strategy, rank, world_size), folder / f"{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name != "single"])
def test_every_strategy_reproduces_the_loss_of_single(strategy: str, tmp_path: Path) -> None:
    world_size = 2
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=rank_process, args=(strategy, rank, world_size, tmp_path)) for rank in range(world_size)
    ]
    for process in processes:
        process.start()
    expected, expected_weights = losses_of("single")
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * world_size
    losses, weights = zip(*(torch.load(tmp_path / f"{rank}.pt") for rank in range(world_size)), strict=True)
    assert losses[0] == pytest.approx(expected, abs=1e-4)
    assert losses[0] == losses[1]
    assert weights[0] == weights[1] == pytest.approx(expected_weights, rel=1e-5)
    assert len(set(expected)) == STEPS  # the network was really trained
    assert min(abs(a - b) for a, b in pairwise(expected)) > 1e-6


def test_an_unknown_strategy_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(LookupError, match='no strategy "dpp"; there are single, ddp'):
        get_strategy("dpp")


# --- the step that they share -----------------------------------------------------------------------------------------


def losses_with(**config: Any) -> list[float]:
    """Of some steps on one batch."""
    settings = settings_of("single", **config)
    torch.manual_seed(0)
    network = vgg19(width=settings.width, head=settings.head)
    step = get_strategy("single").build(network, settings, CPU)
    images, labels = torch.randn(16, 3, 32, 32), torch.arange(16) % 10
    return [step(images, labels, OFF).item() for _ in range(6)]


@pytest.mark.parametrize(
    "config", [{}, {"precision": "bf16"}, {"memory_format": "channels_last"}, {"optimizer": "adamw"}, {"momentum": 0.0}]
)
def test_a_batch_seen_again_and_again_is_learned(config: dict[str, Any]) -> None:
    losses = losses_with(learning_rate=0.001 if config.get("optimizer") == "adamw" else 0.02, **config)
    assert losses[-1] < losses[0]


def test_the_memory_format_does_not_change_what_is_learned() -> None:
    """Compared over two steps: later ones enlarge what rounding did to the first."""
    assert losses_with(memory_format="channels_last")[:2] == pytest.approx(losses_with()[:2], rel=1e-3)


def test_only_weights_decay() -> None:
    """With a gradient of zero, decay alone moves parameters."""
    settings = replace(settings_of("single"), weight_decay=0.1, momentum=0.0)
    from trainables.step import optimizer

    network = vgg19(width=0.01)
    torch.nn.init.ones_(network[-1].bias)  # type: ignore[index]
    before = [p.detach().clone() for p in network.parameters()]
    update = optimizer(network, settings)
    for p in network.parameters():
        p.grad = torch.zeros_like(p)
    update.step()
    for p, old in zip(network.parameters(), before, strict=True):
        assert torch.allclose(p, old * (1 - 0.05 * 0.1 * (p.ndim > 1)))
