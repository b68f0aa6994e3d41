"""The network: its size by width and head, and what batch normalisation does to it."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

from trainables.network.vgg import Initialization, scaled, vgg


def test_full_width_has_the_known_number_of_parameters() -> None:
    """Sixteen 3x3 convolutions without bias, scale and shift of each, one linear layer: 20,035,018."""
    network = vgg()
    assert sum(p.numel() for p in network.parameters()) == 20_035_018
    assert sum(isinstance(m, nn.Conv2d) for m in network.modules()) == 16


@pytest.mark.parametrize(("depth", "parameters"), [(11, 9_231_114), (13, 9_416_010), (16, 14_728_266)])
def test_shallower_ones_have_the_layers_of_their_name(depth: int, parameters: int) -> None:
    """The numbers of the usual implementations with batch normalisation, whose convolutions have a bias, without it."""
    network = vgg(depth=depth)  # type: ignore[arg-type]
    layers = [m for m in network.modules() if isinstance(m, nn.Conv2d)]
    assert len(layers) == depth - 3
    biases = sum(layer.out_channels for layer in layers)
    assert sum(p.numel() for p in network.parameters()) == parameters - biases


def test_the_fully_connected_head_has_three_linear_layers() -> None:
    network = vgg(width=0.125, head="fully_connected")
    assert sum(isinstance(m, nn.Linear) for m in network.modules()) == 3


@pytest.mark.parametrize(("width", "channels"), [(1.0, 512), (0.5, 256), (0.13, 64), (0.001, 8)])
def test_channels_are_multiples_of_eight_and_at_least_eight(width: float, channels: int) -> None:
    assert scaled(512, width) == channels


@pytest.mark.parametrize("head", ["average_pooling", "fully_connected"])
@pytest.mark.parametrize("norm", [True, False])
def test_logits_have_the_scale_of_logits(head: str, norm: bool) -> None:
    torch.manual_seed(0)
    network = vgg(7, width=0.125, head=head, norm=norm).eval()  # type: ignore[arg-type]
    logits = network(torch.randn(4, 3, 32, 32))
    assert logits.shape == (4, 7)
    assert 1e-3 < logits.std() < 10


@pytest.mark.parametrize("initialization", ["identity", "he"])
def test_a_convolution_passes_its_input_on_where_the_start_is_the_identity(initialization: Initialization) -> None:
    network = vgg(width=0.125, initialization=initialization)
    convolutions = [module for module in network.modules() if isinstance(module, nn.Conv2d)]
    maps = torch.rand(2, convolutions[3].in_channels, 8, 8)
    passed_on = convolutions[3](maps)[:, : maps.shape[1]]
    assert torch.allclose(passed_on, maps, atol=1e-6) == (initialization == "identity")
    assert convolutions[0].weight.std() > 0.1  # of the three colours: always at random


def test_rectifying_after_pooling_changes_no_value_and_no_gradient() -> None:
    torch.manual_seed(0)
    network = vgg(width=0.05)
    twin: Any = copy.deepcopy(network)
    pools = [
        i for i, layer in enumerate(twin) if isinstance(layer, nn.Sequential) and isinstance(layer[0], nn.MaxPool2d)
    ]
    assert len(pools) == 4
    for i in pools:
        twin[i - 1].append(nn.ReLU())
        twin[i] = twin[i][0]
    pictures = torch.randn(4, 3, 32, 32)
    results = []
    for each in (network, twin):
        logits = each(pictures)
        results.append([logits, *torch.autograd.grad(logits.square().sum(), list(each.parameters()))])
    torch.testing.assert_close(*results, rtol=0, atol=0)


def test_without_normalisation_a_picture_does_not_depend_on_its_batch() -> None:
    torch.manual_seed(0)
    pictures = torch.randn(4, 3, 32, 32)
    plain, normalised = (vgg(width=0.01, norm=norm).train() for norm in (False, True))
    torch.testing.assert_close(plain(pictures)[:1], plain(pictures[:1]))
    assert not torch.allclose(normalised(pictures)[:2], normalised(pictures[:2]))
