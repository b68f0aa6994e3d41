"""Counted operations: the published network has the published number, and width scales it."""

import pytest

from tests.trainables.shapes import VGG_SHAPE
from trainables.network.vgg import CHANNELS, CONVOLUTIONS
from trainables.prediction.flops import training_flops_per_sample
from trainables.setting_check import checked
from trainables.vgg19_cifar10 import trainable as vgg19_cifar10
from trainables.vgg19_settings import Vgg19Settings


def settings(**config: object) -> Vgg19Settings:
    return Vgg19Settings(**checked(config, vgg19_cifar10.PARAMETERS or {}))


def test_vgg19_takes_as_many_operations_as_its_layers_say() -> None:
    """Forward, gradient of the weights, gradient of the input; the pictures themselves need none."""
    channels, size, forward = 3, 32, 0
    for channels_out, number in zip(CHANNELS, CONVOLUTIONS[19], strict=True):
        for _ in range(number):
            forward += 2 * 9 * channels * channels_out * size**2
            channels = channels_out
        size //= 2
    first = 2 * 9 * 3 * 64 * 32**2
    expected = 3 * forward - first + 3 * 2 * 512 * 10
    assert training_flops_per_sample(settings(), VGG_SHAPE) == expected == 2_385_278_976


def test_neither_batch_nor_precision_nor_format_changes_the_work_of_a_picture() -> None:
    plain = training_flops_per_sample(settings(width=0.1), VGG_SHAPE)
    assert plain == training_flops_per_sample(
        settings(width=0.1, batch_size=512, precision="bf16", memory_format="channels_last"), VGG_SHAPE
    )


def test_the_kernel_of_the_convolutions_does_not_change_the_work() -> None:
    if "conv_kernel" not in (vgg19_cifar10.PARAMETERS or {}):
        pytest.skip("not a parameter yet")
    counts = {
        training_flops_per_sample(settings(width=0.1, conv_kernel=kernel), VGG_SHAPE) for kernel in ("library", "gemm")
    }
    assert len(counts) == 1


def test_half_the_channels_are_about_a_quarter_of_the_work() -> None:
    whole, half = (training_flops_per_sample(settings(width=width), VGG_SHAPE) for width in (1.0, 0.5))
    assert 0.24 < half / whole < 0.27
