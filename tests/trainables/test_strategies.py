"""Every strategy gives the losses of `single`: the suite that a new one joins by its name in STRATEGIES."""

import copy
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pytest
import torch

from tests.trainables.ranked import on_ranks
from tests.trainables.shapes import VGG_SHAPE
from trainables.network.normalization import synchronised
from trainables.network.vgg import vgg
from trainables.parallel import ranks
from trainables.plan import Plan, share_of
from trainables.samples.generated import generate
from trainables.samples.loaders import training_batches
from trainables.samples.picture_source import Pictures
from trainables.setting_check import checked
from trainables.stages import Timeline
from trainables.strategies import get_strategy
from trainables.strategy_table import STRATEGIES
from trainables.vgg19_cifar10 import trainable as vgg19_cifar10
from trainables.vgg19_settings import Vgg19Settings

CPU = torch.device("cpu")
OFF = Timeline(CPU)
STEPS = 20
# Of a loss near 2.3 and of each weight, in fp64. Sums in another order differ by 1e-16, and 20 steps of 19 layers
# without normalisation enlarge that; fp32 begins with 1e-7 and comes to 1e-3.
TOLERANCE = 1e-8
NORMED_TOLERANCE = 1e-6


def settings_of(strategy: str, **config: Any) -> Vgg19Settings:
    assert vgg19_cifar10.PARAMETERS is not None
    given = {"batch_size": 16, "learning_rate": 0.02, "width": 0.0625, "precision": "fp32", **config}
    if strategy == "pipeline" and given["batch_size"] % 4:
        given["num_microbatches"] = 1  # they are of equal size
        given.pop("accumulation_steps", None)
    return Vgg19Settings(**checked({**given, "strategy": strategy}, vgg19_cifar10.PARAMETERS))


def test_gradients_of_parts_add_up_to_those_of_the_batch() -> None:
    whole, parts = (trained("single", 0, 1, batch_size=22, accumulation_steps=count) for count in (1, 3))
    assert parts.losses == pytest.approx(whole.losses, abs=TOLERANCE)


@pytest.mark.parametrize(("strategy", "readers"), [("ddp", 3), ("parameter_server", 2), ("pipeline", 1)])
def test_the_ranks_that_read_samples_read_each_of_a_batch_once(strategy: str, readers: int) -> None:
    shares = [range(*share_of(strategy, rank, 3).within(16)) for rank in range(3)]
    assert sorted(chain.from_iterable(shares)) == list(range(16))
    assert sum(map(bool, shares)) == len(STRATEGIES[strategy].readers(3)) == readers


@dataclass(frozen=True)
class Outcome:
    """What one rank has after some steps."""

    losses: list[float]  # of the whole batch
    model: dict[str, torch.Tensor]
    checkpoint: dict[str, Any]


def trained(
    strategy: str, rank: int, world_size: int, checkpoint: dict[str, Any] | None = None, **config: Any
) -> Outcome:
    """Some steps on generated pictures; without batch normalisation unless asked for."""
    norm = config.pop("norm", False)
    settings = settings_of(strategy, **config)
    torch.manual_seed(0)
    pictures = Pictures(*generate(settings.batch_size * STEPS, seed=0))
    chosen = get_strategy(strategy)
    plan = Plan(np.arange(len(pictures.labels)), settings.batch_size, 0, share_of(settings.strategy, rank, world_size))
    model = vgg(width=settings.width, norm=norm).double()
    if settings.batch_norm == "synchronised":
        model = synchronised(model)
    step = chosen.build(model, settings, VGG_SHAPE, CPU)
    if checkpoint:
        step.load_state_dict(copy.deepcopy(checkpoint))  # or training would change the one given
    step.set_learning_rate(settings.learning_rate)
    batches = training_batches("memory", pictures, plan, CPU, num_workers=0, pin_memory=False)
    losses = torch.stack([step(images.double(), labels, OFF) for images, labels in batches.epoch(1, OFF)])
    step.gather()
    state = step.state_dict()
    return Outcome(ranks.summed(losses, world_size).tolist(), copy.deepcopy(step.model.state_dict()), state)


def on_rank(rank: int, world_size: int, strategy: str, more: dict[str, Any]) -> Outcome:
    return trained(strategy, rank, world_size, **more)


def several(strategy: str, world_size: int, **more: Any) -> list[Outcome]:
    return on_ranks(on_rank, world_size, strategy, more)


CONFORMING = [name for name, row in STRATEGIES.items() if not row.one_process]  # on GPUs: test_gpu_strategies
SYNCHRONISED = [name for name in ("ddp", "ring_allreduce", "fsdp") if name in STRATEGIES]


@pytest.mark.parametrize("strategy", CONFORMING)
@pytest.mark.parametrize(
    "config",
    [
        pytest.param({}, id="equal shares"),
        pytest.param({"batch_size": 17}, id="unequal shares", marks=pytest.mark.slow),
        pytest.param({"optimizer": "adamw", "learning_rate": 1e-3}, id="adamw", marks=pytest.mark.slow),
        pytest.param({"max_gradient_norm": 0.1}, id="limited gradients", marks=pytest.mark.slow),
        pytest.param({"batch_size": 22, "accumulation_steps": 3}, id="unequal parts"),
    ],
)
def test_every_strategy_reproduces_the_loss_of_single(strategy: str, config: dict[str, Any]) -> None:
    """Also where the ranks do not divide the batch. All ranks end with the same weights."""
    expected, outcomes = trained("single", 0, 1, **config), several(strategy, 2, **config)
    assert outcomes[0].losses == pytest.approx(expected.losses, abs=TOLERANCE)
    for outcome in outcomes:
        assert outcome.losses == outcomes[0].losses
        assert_same_weights(outcome.model, outcomes[0].model, atol=0.0)
    assert_same_weights(outcomes[0].model, expected.model, atol=TOLERANCE)
    assert len(set(expected.losses)) == STEPS  # the network was really trained
    assert min(abs(a - b) for a, b in pairwise(expected.losses)) > 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("strategy", CONFORMING)
def test_every_strategy_reproduces_the_loss_of_single_on_three_ranks(strategy: str) -> None:
    assert several(strategy, 3)[0].losses == pytest.approx(trained("single", 0, 1).losses, abs=TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", SYNCHRONISED)
def test_with_synchronised_batch_normalisation_the_loss_is_that_of_single_with_it(strategy: str) -> None:
    """And the running statistics, among the weights. The ranks have unequal shares."""
    config: dict[str, Any] = {"norm": True, "batch_size": 17}
    expected = trained("single", 0, 1, **config)
    outcomes = several(strategy, 3, **config, batch_norm="synchronised")
    assert outcomes[0].losses == pytest.approx(expected.losses, abs=NORMED_TOLERANCE)
    for outcome in outcomes:
        assert_same_weights(outcome.model, expected.model, atol=NORMED_TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", CONFORMING)
def test_a_checkpoint_of_one_strategy_goes_on_in_another(strategy: str) -> None:
    """From `single` to this one and from this one to `single`: what follows is what `single` alone would do."""
    first = trained("single", 0, 1)
    expected = trained("single", 0, 1, checkpoint=first.checkpoint)
    here = several(strategy, 2, checkpoint=first.checkpoint)[0]
    assert here.losses == pytest.approx(expected.losses, abs=TOLERANCE)
    there = trained("single", 0, 1, checkpoint=several(strategy, 2)[0].checkpoint)
    assert there.losses == pytest.approx(expected.losses, abs=TOLERANCE)


def assert_same_weights(mine: dict[str, torch.Tensor], others: dict[str, torch.Tensor], atol: float) -> None:
    assert mine.keys() == others.keys()
    for name, weights in mine.items():
        torch.testing.assert_close(weights, others[name], rtol=0, atol=atol)


def test_an_unknown_strategy_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(LookupError, match='no strategy "dpp"; there are single, '):
        get_strategy("dpp")


# --- the step that they share -----------------------------------------------------------------------------------------


def losses_with(**config: Any) -> list[float]:
    """Of some steps on one batch."""
    settings = settings_of("single", **config)
    torch.manual_seed(0)
    network = vgg(width=settings.width, head=settings.head)
    step = get_strategy("single").build(network, settings, VGG_SHAPE, CPU)
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


def test_gradients_are_scaled_down_to_their_largest_norm() -> None:
    """Without momentum and decay, one step then moves the weights by the learning rate times that norm."""
    plain = {"momentum": 0.0, "weight_decay": 0.0, "learning_rate": 1.0}
    free, limited = (moved_by_one_step(max_gradient_norm=most, **plain) for most in (0.0, 0.01))
    assert free.norm() > 0.02
    assert limited.norm() == pytest.approx(0.01, rel=1e-3)
    assert torch.cosine_similarity(free, limited, dim=0) == pytest.approx(1.0, abs=1e-5)
    assert torch.equal(moved_by_one_step(max_gradient_norm=1e3, **plain), free)


def moved_by_one_step(**config: Any) -> torch.Tensor:
    settings = settings_of("single", **config)
    torch.manual_seed(0)
    network = vgg(width=settings.width)
    before = torch.nn.utils.parameters_to_vector(network.parameters()).detach()
    step = get_strategy("single").build(network, settings, VGG_SHAPE, CPU)
    step(torch.randn(16, 3, 32, 32), torch.arange(16) % 10, OFF)
    return before - torch.nn.utils.parameters_to_vector(network.parameters()).detach()


def test_only_weights_decay() -> None:
    """With a gradient of zero, decay alone moves parameters."""
    settings = replace(settings_of("single"), weight_decay=0.1, momentum=0.0)
    from trainables.step import optimizer

    network = vgg(width=0.01)
    torch.nn.init.ones_(network[-1].bias)  # type: ignore[index]
    before = [p.detach().clone() for p in network.parameters()]
    update = optimizer(network, settings)
    for p in network.parameters():
        p.grad = torch.zeros_like(p)
    update.step()
    for p, old in zip(network.parameters(), before, strict=True):
        assert torch.allclose(p, old * (1 - 0.02 * 0.1 * (p.ndim > 1)))
