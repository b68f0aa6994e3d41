"""Convolutions as few matrix products: equal to the library's, in every gradient, on maps of every form."""

import gc

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from trainables.network.convolution import TILINGS, Convolution, Kernel, _Plan, convolve

SIZES = [(1, 1), (2, 2), (3, 3), (4, 4), (8, 8), (7, 6), (5, 3), (2, 5), (1, 4), (16, 16)]
FORMATS = [torch.contiguous_format, torch.channels_last]


def results(convolution: nn.Module, images: Tensor) -> list[Tensor]:
    """The maps, and the gradients of a fixed combination of them by pictures and weights."""
    images = images.detach().clone().requires_grad_()
    maps = convolution(images)
    slopes = torch.linspace(-1, 1, maps.numel(), dtype=maps.dtype).view_as(maps)
    return [maps, *torch.autograd.grad(maps, [images, *convolution.parameters()], slopes)]


def layer(kernel: Kernel, *, channels: tuple[int, int] = (5, 7), bias: bool = False) -> Convolution:
    torch.manual_seed(0)
    convolution = Convolution(*channels, size=4, bias=bias)
    convolution.kernel = kernel
    return convolution


@pytest.mark.parametrize("kernel", TILINGS)
@pytest.mark.parametrize("memory_format", FORMATS)
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("size", SIZES)
def test_it_is_the_library_s_convolution(
    size: tuple[int, int], batch: int, memory_format: torch.memory_format, kernel: Kernel
) -> None:
    images = torch.randn(batch, 5, *size, dtype=torch.float64).contiguous(memory_format=memory_format)
    gemm, library = (layer(kind, bias=True).double().to(memory_format=memory_format) for kind in (kernel, "library"))
    for ours, theirs in zip(results(gemm, images), results(library, images), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kernel", TILINGS)
def test_in_bf16_it_rounds_at_most_four_times_as_much_as_the_library(kernel: Kernel) -> None:
    images = torch.randn(8, 64, 8, 8).relu().contiguous(memory_format=torch.channels_last)
    exact = results(layer("library", channels=(64, 64)).double(), images.double())
    errors: list[list[float]] = []
    for kind in (kernel, "library"):
        with torch.autocast("cpu", torch.bfloat16):
            rounded = results(layer(kind, channels=(64, 64)), images)
        assert rounded[0].dtype == torch.bfloat16
        errors.append([((a - b).norm() / b.norm()).item() for a, b in zip(rounded, exact, strict=True)])
    for ours, theirs in zip(*errors, strict=True):
        assert ours < min(4 * theirs, 0.02)


@pytest.mark.parametrize("kernel", TILINGS)
@pytest.mark.parametrize("memory_format", FORMATS)
def test_maps_and_gradients_have_the_layout_of_pictures_and_weights(
    memory_format: torch.memory_format, kernel: Kernel
) -> None:
    """Else autograd, or the next layer, would copy them."""
    images = torch.randn(2, 5, 4, 4).contiguous(memory_format=memory_format)
    maps, of_images, of_weights = results(layer(kernel).to(memory_format=memory_format), images)
    assert all(x.is_contiguous(memory_format=memory_format) for x in (maps, of_images, of_weights))


def test_pictures_that_need_no_gradient_get_none() -> None:
    convolution = layer("gemm_4x4")
    convolution(torch.randn(2, 5, 4, 4)).sum().backward()
    assert convolution.weight.grad is not None


def test_checkpoints_of_both_kernels_are_interchangeable() -> None:
    assert layer("gemm_4x4").state_dict().keys() == nn.Conv2d(5, 7, 3, bias=False).state_dict().keys()


def test_counting_with_fake_tensors_leaves_nothing_behind() -> None:
    with FakeTensorMode():
        results(layer("gemm_4x4"), torch.randn(2, 5, 12, 12))
    assert type(results(layer("gemm_4x4"), torch.randn(2, 5, 12, 12))[0]) is Tensor


def test_memory_can_be_counted_without_numbers() -> None:
    images, weight = torch.empty(2, 5, 8, 8, device="meta"), torch.empty(7, 5, 3, 3, device="meta", requires_grad=True)
    convolve(images, weight, "gemm_4x2").sum().backward()
    assert weight.grad is not None
    assert weight.grad.shape == weight.shape


def plans() -> list[_Plan]:
    gc.collect()
    return [each for each in gc.get_objects() if type(each) is _Plan]


def test_layers_share_their_matrices_which_are_freed_with_the_last_layer() -> None:
    before = len(plans())
    first, second = (layer("gemm_4x2", channels=(5, 5)) for _ in range(2))
    images = torch.rand(2, 5, 6, 6)
    for _ in range(2):
        second(first(images)).sum().backward()
    assert len(plans()) == before + 1
    del first, second
    assert len(plans()) == before
