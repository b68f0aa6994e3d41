"""Sharded data parallelism: what each process holds, and where the time goes."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.tensor import DTensor

from tests.trainables.ranked import on_ranks
from tests.trainables.shapes import VGG_SHAPE
from tests.trainables.test_strategies import CPU, OFF, TOLERANCE, assert_same_weights, settings_of, several, trained
from trainables.contract import Stage
from trainables.network.vgg import vgg
from trainables.stages import Timeline
from trainables.strategies import get_strategy
from trainables.strategies.fsdp import _blocks


@pytest.mark.slow
def test_alone_it_is_single_also_with_batch_normalisation() -> None:
    expected, (outcome,) = trained("single", 0, 1, norm=True), several("fsdp", 1, norm=True)
    assert outcome.losses == pytest.approx(expected.losses, abs=TOLERANCE)
    assert_same_weights(outcome.model, expected.model, atol=1e-6)


@pytest.mark.slow
def test_batch_normalisation_is_that_of_ddp() -> None:
    expected, outcomes = several("ddp", 2, norm=True), several("fsdp", 2, norm=True)
    assert outcomes[0].losses == pytest.approx(expected[0].losses, abs=TOLERANCE)
    for outcome in outcomes:
        assert_same_weights(outcome.model, expected[0].model, atol=1e-6)
        assert_same_weights(outcome.model, outcomes[0].model, atol=0.0)


def look(rank: int, world_size: int, config: dict[str, Any]) -> dict[str, Any]:
    """At one process while it trains on one batch again and again."""
    settings = settings_of("fsdp", **config)
    torch.manual_seed(0)
    step = get_strategy("fsdp").build(vgg(width=settings.width, head=settings.head), settings, VGG_SHAPE, CPU)
    images, labels = torch.randn(16, 3, 32, 32), torch.arange(16) % 10
    mine = slice(16 * rank // world_size, 16 * (rank + 1) // world_size)
    timeline = Timeline(CPU)
    losses = [step(images[mine], labels[mine], OFF).item()]
    timeline.start()
    for _ in range(5):
        losses.append(step(images[mine], labels[mine], timeline).item())
        timeline.step()
    timeline.stop()
    losses.append(step(images[mine], labels[mine], OFF).item())
    optimizer = step._optimizer
    step.gather()
    return {
        "losses": losses,
        "numbers": sum(p.numel() for p in step.model.parameters()),
        "momenta": sum(known["momentum_buffer"].numel() for known in optimizer.state.values()),
        "stages": timeline.seconds_per_step(),
        "plain": not any(isinstance(p, DTensor) for p in step.model.parameters()),
        "model": step.model.state_dict(),
    }


class Block(nn.Module):
    """Layer that takes and returns other things than a tensor each."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, *, inputs: torch.Tensor) -> tuple[int, torch.Tensor]:
        return 0, self.layer(inputs)


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks, self.last = nn.ModuleList(Block() for _ in range(3)), nn.Linear(3, 10)
        self.blocks[0].requires_grad_(False)

    def forward(self, images: torch.Tensor) -> Any:
        x = images.mean((2, 3))
        for block in self.blocks:
            _, x = block(inputs=x)
        return self.last(x)


def stages_of_blocks(rank: int, world_size: int) -> dict[Stage, float]:
    step = get_strategy("fsdp").build(Blocks(), settings_of("fsdp"), VGG_SHAPE, CPU)
    timeline = Timeline(CPU)
    timeline.start()
    step(torch.randn(16, 3, 32, 32), torch.arange(16) % 10, timeline)
    timeline.step()
    timeline.stop()
    return timeline.seconds_per_step()


def test_blocks_may_be_frozen_and_take_and_return_anything() -> None:
    (stages,) = on_ranks(stages_of_blocks, 1)
    assert set(stages) == {"forward", "backward", "communicate", "update"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [
        {"precision": "bf16", "memory_format": "channels_last", "conv_kernel": "gemm"},
        {"head": "fully_connected", "fused_optimizer": False},
    ],
    ids=str,
)
def test_each_process_optimises_its_part_and_evaluates_the_whole(config: dict[str, Any]) -> None:
    views = on_ranks(look, 3, config)
    losses = [sum(parts) for parts in zip(*(view["losses"] for view in views), strict=True)]
    assert losses[-1] < losses[0]
    assert sum(view["momenta"] for view in views) == views[0]["numbers"]
    assert max(view["momenta"] for view in views) < 0.4 * views[0]["numbers"]
    for view in views:
        assert view["plain"]
        assert set(view["stages"]) == {"forward", "backward", "communicate", "update"}
        assert all(seconds > 0 for seconds in view["stages"].values())
        assert_same_weights(view["model"], views[0]["model"], atol=0.0)


def test_a_layer_that_occurs_twice_in_a_chain_stays_in_both_places() -> None:
    torch.manual_seed(0)
    activation = nn.Tanh()
    chain = nn.Sequential(nn.Linear(4, 8), activation, nn.Linear(8, 8), activation, nn.Linear(8, 1))
    inputs = torch.randn(3, 4)
    torch.testing.assert_close(nn.Sequential(*_blocks(chain))(inputs), chain(inputs))


def chain(shared: str) -> nn.Sequential:
    """Chain with a weight of two layers, or with a layer that occurs twice; a layer without weights is between."""
    torch.manual_seed(0)
    first, last = nn.Linear(12, 12, bias=False), nn.Linear(12, 12, bias=False)
    last.weight = first.weight
    between = [nn.AdaptiveAvgPool2d(2), nn.Flatten(), first, nn.Tanh(), nn.Linear(12, 12), nn.Tanh()]
    return nn.Sequential(*between, last if shared == "weight" else first, nn.Linear(12, 10))


def losses_of_chain(rank: int, world_size: int, strategy: str, shared: str) -> list[float]:
    settings = settings_of(strategy, precision="fp32")
    torch.manual_seed(0)
    images, labels = torch.randn(16, 3, 32, 32), torch.arange(16) % 10
    mine = slice(16 * rank // world_size, 16 * (rank + 1) // world_size)
    step = get_strategy(strategy).build(chain(shared), settings, VGG_SHAPE, CPU)
    return [step(images[mine], labels[mine], OFF).item() for _ in range(4)]


@pytest.mark.parametrize("shared", ["weight", "layer"])
def test_a_weight_of_two_layers_of_a_chain_is_one_weight(shared: str) -> None:
    parts = on_ranks(losses_of_chain, 2, "fsdp", shared)
    assert [sum(each) for each in zip(*parts, strict=True)] == pytest.approx(
        losses_of_chain(0, 1, "single", shared), abs=1e-6
    )


def single_number(rank: int, world_size: int) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(3072, 10))
    model[1].scale = nn.Parameter(torch.ones(()))
    get_strategy("fsdp").build(model, settings_of("fsdp"), VGG_SHAPE, CPU)


def test_a_weight_without_a_dimension_is_refused_by_name() -> None:
    with pytest.raises(AssertionError, match=r"strategy fsdp: 1\.scale has no dimension to divide"):
        on_ranks(single_number, 2)
