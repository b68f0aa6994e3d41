"""A chain of layers is cut where its slowest part is fastest."""

import itertools
import random

import pytest
import torch

from tests.trainables.test_strategies import settings_of
from trainables.contract import InfeasibleError
from trainables.network.vgg import vgg
from trainables.parallel.balance import cuts, is_chain, layer_costs


class Pair(torch.nn.Module):
    def forward(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return inputs, inputs


def test_a_layer_that_returns_no_tensor_is_named() -> None:
    chain = torch.nn.Sequential(torch.nn.Flatten(), Pair())
    with pytest.raises(InfeasibleError, match="strategy pipeline: a Pair of the chain returns a tuple"):
        layer_costs(chain, torch.zeros(2, 3), settings_of("pipeline", precision="fp32"))


@pytest.mark.parametrize(
    ("seconds", "parts", "expected"),
    [
        ([1, 1, 1, 1, 1, 1], 3, [0, 2, 4, 6]),  # equal layers, equal parts
        ([5, 1, 1, 1], 2, [0, 1, 4]),  # the first takes most of it
        ([1, 1, 1, 5], 2, [0, 3, 4]),
        ([1, 9, 1], 3, [0, 1, 2, 3]),  # a part for each
        ([3, 1, 4], 1, [0, 3]),
        ([0, 0, 0, 7], 3, [0, 1, 2, 4]),  # each part has a layer, even if it takes no time
        ([2, 3, 4], 2, [0, 2, 3]),  # 5 and 4, not 2 and 7
    ],
)
def test_the_longest_part_is_as_short_as_can_be(seconds: list[float], parts: int, expected: list[int]) -> None:
    assert cuts(seconds, parts) == expected


def test_no_other_cut_is_better() -> None:
    """All cuts tried out: the definition itself."""
    rng = random.Random(0)

    def longest(seconds: list[float], ends: tuple[int, ...] | list[int]) -> float:
        return max(sum(seconds[a:b]) for a, b in itertools.pairwise(ends))

    for _ in range(200):
        seconds = [rng.choice([0.0, 1.0, rng.random(), 10 * rng.random()]) for _ in range(rng.randint(1, 9))]
        n, parts = len(seconds), rng.randint(1, len(seconds))
        all_cuts = [(0, *inner, n) for inner in itertools.combinations(range(1, n), parts - 1)]
        found = cuts(seconds, parts)
        assert tuple(found) in all_cuts
        assert longest(seconds, found) == pytest.approx(min(longest(seconds, each) for each in all_cuts))


def test_more_parts_than_layers_are_refused() -> None:
    with pytest.raises(ValueError, match="2 layers cannot be cut into 3 parts"):
        cuts([1.0, 1.0], 3)


@pytest.mark.parametrize("head", ["average_pooling", "fully_connected"])
def test_measuring_leaves_network_and_dropout_as_they_were(head: str) -> None:
    settings = settings_of("pipeline", precision="bf16", head=head)
    torch.manual_seed(0)
    network = vgg(width=0.01, head=settings.head)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    state = torch.get_rng_state()
    assert isinstance(network, torch.nn.Sequential)
    costs = layer_costs(network, torch.zeros(4, 3, 32, 32), settings)
    assert torch.equal(torch.get_rng_state(), state)
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, before[name])
    assert all(parameter.grad is None for parameter in network.parameters())
    assert all(cost.seconds > 0 for cost in costs)
    assert (costs[0].output.shape, costs[0].output.dtype) == ((4, 8, 32, 32), torch.bfloat16)
    assert costs[-1].output.shape == (4, 10)


def test_layers_that_work_in_place_are_timed() -> None:
    chain = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(inplace=True), torch.nn.Linear(3, 2))
    assert len(layer_costs(chain, torch.zeros(2, 3), settings_of("pipeline", precision="fp32"))) == 3


class Residual(torch.nn.Sequential):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        whole: torch.Tensor = x + super().forward(x)
        return whole


def test_a_subclass_with_its_own_forward_is_no_chain() -> None:
    assert is_chain(torch.nn.Sequential(torch.nn.Linear(3, 3)))
    assert not is_chain(Residual(torch.nn.Linear(3, 3)))
