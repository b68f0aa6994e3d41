"""What a step keeps in memory, counted without computing: closed forms of the parts, and no trace left behind."""

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.trainables.shapes import VGG_SHAPE
from trainables.network import convolution
from trainables.prediction.tensor_memory import TensorMemory, _Watch, tensor_memory
from trainables.setting_check import checked
from trainables.vgg19_cifar10 import trainable as vgg19_cifar10
from trainables.vgg19_settings import Vgg19Settings

CPU = torch.device("cpu")
BATCH, WIDTH = 64, 16


def settings(**config: object) -> Vgg19Settings:
    return Vgg19Settings(**checked({"precision": "fp32", **config}, vgg19_cifar10.PARAMETERS or {}))


def of(network: nn.Module, batch: int = BATCH, kept_below: int = 0, **config: object) -> TensorMemory:
    return tensor_memory(network.to("meta"), settings(**config), VGG_SHAPE, batch, BATCH, CPU, kept_below)


def two_layers() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(3072, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 10))


WEIGHTS = 4 * (3072 * WIDTH + WIDTH + WIDTH * 10 + 10)


def test_parameters_gradients_and_the_optimizers_state_are_as_large_as_theory_says() -> None:
    sgd, adamw = of(two_layers()), of(two_layers(), optimizer="adamw")
    assert sgd.parameters == sgd.gradients == WEIGHTS
    assert sgd.optimizer == pytest.approx(WEIGHTS, abs=100)  # momentum; and the loss of the last step
    assert adamw.optimizer == pytest.approx(2 * WEIGHTS, abs=100)  # two moments; and a counter for each tensor


def test_frozen_weights_have_no_gradients_and_no_state() -> None:
    network = two_layers()
    network[1].requires_grad_(False)  # type: ignore[index]
    found, trained = of(network), 4 * (WIDTH * 10 + 10)
    assert (found.parameters, found.gradients) == (WEIGHTS, trained)
    assert found.optimizer == pytest.approx(trained, abs=100)


def test_tied_weights_and_buffers_are_counted_once() -> None:
    with torch.device("meta"):
        first, second = nn.Linear(3072, 3072, bias=False), nn.Linear(3072, 3072, bias=False)
        second.weight, counts = first.weight, torch.ones(5)
        for layer in (first, second):
            layer.register_buffer("counts", counts)
        found = of(nn.Sequential(nn.Flatten(), first, second, nn.Linear(3072, 10)))
    weights = 4 * (3072 * 3072 + 3072 * 10 + 10)
    assert (found.parameters, found.gradients) == (weights + 4 * 5, weights)


def test_activations_are_what_the_layers_keep() -> None:
    """The pictures, tanh's result (once, though two layers need it), the logarithms of softmax, and the labels."""
    kept = 4 * BATCH * (3072 + WIDTH + 10) + 8 * BATCH
    assert of(two_layers()).activations == pytest.approx(kept, abs=100)


def test_16_bits_keep_half_and_copies_of_the_weights_that_the_backward_pass_needs() -> None:
    """Those of the first layer it does not need: there is no gradient of the pictures."""
    kept = 2 * BATCH * (3072 + WIDTH) + 4 * BATCH * 10 + 8 * BATCH + 2 * WIDTH * 10
    assert of(two_layers(), precision="bf16").activations == pytest.approx(kept, abs=500)


def test_activations_grow_with_the_batch_and_the_rest_does_not() -> None:
    small, large = of(two_layers()), of(two_layers(), batch=2 * BATCH)
    assert large.activations == pytest.approx(2 * small.activations, abs=100)
    assert (large.parameters, large.gradients, large.optimizer) == (small.parameters, small.gradients, small.optimizer)


def test_the_peak_holds_all_parts_and_evaluation_can_be_above_it() -> None:
    found = of(two_layers(), batch=1)
    assert found.training > found.parameters + found.gradients + found.optimizer + found.activations
    assert found.training_and_evaluation > found.training


def test_an_allocator_that_keeps_small_blocks_has_them_beside_large_ones_that_come_later() -> None:
    peaks = []
    for kept_below in (0, 100):
        with FakeTensorMode(), _Watch(kept_below) as watch:
            small = [torch.empty(20) for _ in range(5)]
            del small
            torch.empty(1000)
        peaks.append(watch.peak)
    assert peaks == [4000, 4000 + 5 * 80]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_an_operator_of_our_own_is_counted_and_works_with_numbers_afterwards(precision: str) -> None:
    images, weight = torch.randn(2, 8, 4, 4), torch.randn(8, 8, 3, 3)
    before = convolution.convolve(images, weight, "gemm_4x2")
    layer = convolution.Convolution(8, 8, size=4, bias=False)
    layer.kernel = "gemm_4x2"
    network = nn.Sequential(nn.Conv2d(3, 8, 8, stride=8), layer, nn.Flatten(), nn.Linear(128, 10))
    assert of(network, precision=precision).activations > 0
    assert torch.equal(convolution.convolve(images, weight, "gemm_4x2"), before)


def test_random_numbers_are_left_alone() -> None:
    network = nn.Sequential(two_layers(), nn.Dropout(0.5))
    before = torch.get_rng_state()
    of(network)
    assert torch.equal(torch.get_rng_state(), before)
