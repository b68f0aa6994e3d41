"""A network in stages on several processes: what each holds, what a micro-batch may be, where the time goes."""

from typing import Any, cast

import pytest
import torch
from torch import nn

from tests.trainables.ranked import on_ranks
from tests.trainables.shapes import VGG_SHAPE
from tests.trainables.test_strategies import (
    CPU,
    OFF,
    TOLERANCE,
    assert_same_weights,
    settings_of,
    several,
    trained,
)
from trainables import torch_trainable
from trainables.contract import InfeasibleError, Resources
from trainables.network.vgg import vgg
from trainables.stages import Timeline
from trainables.strategies import get_strategy, pipeline
from trainables.vgg19_cifar10 import trainable as vgg19_cifar10


@pytest.mark.parametrize(
    "config",
    [
        {"schedule": "1f1b"},
        pytest.param({"num_microbatches": 1}, marks=pytest.mark.slow),
        pytest.param({"num_microbatches": 16}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_neither_schedule_nor_micro_batches_change_what_is_learned(config: dict[str, Any]) -> None:
    outcomes = several("pipeline", 3, **config)
    expected = trained("single", 0, 1)
    assert outcomes[0].losses == pytest.approx(expected.losses, abs=TOLERANCE)
    for outcome in outcomes:
        assert_same_weights(outcome.model, expected.model, atol=TOLERANCE)


def gradients_in_stages(cut: int, parts: int) -> list[torch.Tensor]:
    """Gradients of a small VGG19 in `channels_last`, computed in one stage or, cut at a layer, in two."""
    settings = settings_of("pipeline", memory_format="channels_last", conv_kernel="library")
    torch.manual_seed(0)
    model = cast(nn.Sequential, vgg(width=settings.width)).to(memory_format=torch.channels_last)
    layers = [model] if parts == 1 else [model[:cut], model[cut:]]
    stages = [pipeline._Computation(each, settings, CPU, None if each is layers[-1] else CPU) for each in layers]
    messages = [torch.randn(8, 3, 32, 32)]
    results = []
    for stage in stages:
        results.append(stage(messages[-1]))
        messages.append(results[-1].detach().requires_grad_())
    messages[-1].grad = torch.arange(80.0).view(8, 10)
    for result, message in zip(reversed(results), reversed(messages), strict=False):
        assert message.grad is not None
        result.backward(message.grad.contiguous())  # as it arrives
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


@pytest.mark.parametrize("cut", [2, 9, 15])
def test_gradients_do_not_depend_on_the_cut(cut: int) -> None:
    """To the last bit, for the cut follows from measured times; before a pooling layer (2, 15) and elsewhere."""
    for one, two in zip(gradients_in_stages(cut, 1), gradients_in_stages(cut, 2), strict=True):
        assert torch.equal(one, two)


@pytest.mark.slow
def test_one_micro_batch_is_normalised_as_the_whole_batch() -> None:
    """Losses, weights and running statistics are those of `single`."""
    outcomes = several("pipeline", 2, norm=True, num_microbatches=1)
    expected = trained("single", 0, 1, norm=True)
    assert outcomes[0].losses == pytest.approx(expected.losses, abs=TOLERANCE)
    for outcome in outcomes:
        assert_same_weights(outcome.model, expected.model, atol=1e-6)


def look(rank: int, world_size: int, config: dict[str, Any]) -> dict[str, Any]:
    """At one process while it trains on one batch again and again."""
    settings = settings_of("pipeline", **config)
    torch.manual_seed(0)
    model = vgg(width=settings.width, head=settings.head)
    step = pipeline.build(model, settings, VGG_SHAPE, CPU)
    batch = torch.randn(16, 3, 32, 32), torch.arange(16) % 10
    none = torch.zeros(0, 3, 32, 32), torch.zeros(0, dtype=torch.int64)
    timeline = Timeline(CPU)
    losses = [step(*(none if rank else batch), OFF).item()]
    timeline.start()
    for _ in range(5):
        losses.append(step(*(none if rank else batch), timeline).item())
        timeline.step()
    timeline.stop()
    held = [name for name, weight in model.named_parameters() if weight.untyped_storage().nbytes()]
    step.gather()
    return {
        "losses": losses,
        "held": held,
        "optimised": list(step.state_dict()["optimizer"]),  # rank 0 is told of all
        "stages": timeline.seconds_per_step(),
        "model": model.state_dict(),
    }


@pytest.mark.parametrize(
    "config",
    [
        {"precision": "bf16", "memory_format": "channels_last", "conv_kernel": "gemm", "schedule": "1f1b"},
        {"head": "fully_connected", "memory_format": "channels_last", "optimizer": "adamw", "learning_rate": 1e-3},
    ],
    ids=str,
)
def test_each_process_holds_and_trains_its_own_stage_alone(config: dict[str, Any]) -> None:
    views = on_ranks(look, 2, config)
    assert set(views[0]["losses"]) == {0.0}  # the loss is where the last stage is
    assert views[1]["losses"][-1] < views[1]["losses"][0]
    every = [name for name, _ in vgg(width=0.125, head=config.get("head", "average_pooling")).named_parameters()]
    assert views[0]["held"] + views[1]["held"] == every
    assert all(len(view["held"]) > 0 for view in views)
    assert set(views[0]["optimised"]) == set(every)
    assert set(views[1]["optimised"]) == set(views[1]["held"])
    for view in views:
        assert set(view["stages"]) == {"forward", "backward", "communicate", "update"}
        assert all(seconds > 0 for seconds in view["stages"].values())
        assert_same_weights(view["model"], views[0]["model"], atol=0.0)


def test_a_stage_may_be_a_layer_without_weights() -> None:
    """With as many processes as layers those that only pool are stages, too."""
    assert on_ranks(weights_and_none, 2)[1] > 0


def weights_and_none(rank: int, world_size: int) -> float:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Sequential(torch.nn.Conv2d(3, 10, 3), torch.nn.AdaptiveAvgPool2d(1)), torch.nn.Flatten()
    )
    step = get_strategy("pipeline").build(model, settings_of("pipeline"), VGG_SHAPE, CPU)
    pictures = 0 if rank else 16
    return step(torch.zeros(pictures, 3, 32, 32), torch.zeros(pictures, dtype=torch.int64), OFF).item()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"batch_size": 17}, "batch_size 17: not in 4 equal micro-batches; 16 or 20 is"),
        ({"batch_size": 3}, "batch_size 3: not in 4 equal micro-batches; 4 is"),
        ({"schedule": "1f1b", "num_microbatches": 1}, "num_microbatches 1: schedule 1f1b needs one per process, 2"),
        ({"world_size": 1}, "world_size 1: strategy pipeline needs at least 2"),
        ({"compile": True}, "compile True: not with strategy pipeline"),
        ({"batch_norm": "synchronised"}, "batch_norm synchronised: not with strategy pipeline"),
    ],
)
def test_what_a_pipeline_cannot_do_is_refused_before_it_starts(
    config: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_trainable, "_without_compiler", lambda resources: None)
    given = {"batch_size": 16, "strategy": "pipeline", **config}
    with pytest.raises(InfeasibleError, match=message):
        vgg19_cifar10.layout(given, Resources(cpus=2))


def test_more_processes_than_layers_are_refused_on_all_of_them() -> None:
    with pytest.raises(AssertionError, match="world_size 2: the network has 1 layers to share"):
        on_ranks(one_layer, 2)


def test_a_weight_of_two_stages_is_refused_on_all_of_them() -> None:
    with pytest.raises(AssertionError, match=r"strategy pipeline: 1\.weight is a weight of two stages"):
        on_ranks(tied, 2)


def tied(rank: int, world_size: int) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(3072, 3072), nn.Linear(3072, 3072))
    model[2].weight = model[1].weight
    get_strategy("pipeline").build(model, settings_of("pipeline", precision="fp32"), VGG_SHAPE, CPU)


def test_targets_of_another_length_than_the_batch_are_refused() -> None:
    message = "strategy pipeline: targets are torch.int64 of shape (18,), expected torch.int64 of shape (16,)"
    assert on_ranks(two_more_targets, 2)[0].startswith(message)


def two_more_targets(rank: int, world_size: int) -> str:
    model = nn.Sequential(nn.Flatten(), nn.Linear(3072, 10))
    step = get_strategy("pipeline").build(model, settings_of("pipeline", precision="fp32"), VGG_SHAPE, CPU)
    with pytest.raises((InfeasibleError, RuntimeError)) as raised:
        step(torch.zeros(16 * (rank == 0), 3, 32, 32), torch.zeros(18 * (rank == 0), dtype=torch.int64), OFF)
    return str(raised.value)


def one_layer(rank: int, world_size: int) -> None:
    get_strategy("pipeline").build(torch.nn.Sequential(torch.nn.Linear(1, 1)), settings_of("pipeline"), VGG_SHAPE, CPU)
