"""Batch normalisation over the pictures of several ranks."""

import pytest
import torch
from torch import Tensor, nn

from tests.trainables.ranked import on_ranks
from trainables.contract import InfeasibleError
from trainables.network import normalization
from trainables.network.normalization import synchronised

CPU = torch.device("cpu")
Result = tuple[Tensor, Tensor, Tensor, dict[str, Tensor]]


def whole_batch() -> tuple[Tensor, Tensor]:
    """Pictures, and gradients of a loss by what becomes of them. Far from zero: squares of sums would cancel."""
    torch.manual_seed(0)
    return 300 + torch.randn(7, 5, 4, 4), torch.randn(7, 5, 4, 4)


def normalised(rank: int, world_size: int) -> Result:
    """By this rank's share: values, gradients by pictures, gradients by scales, running statistics."""
    images, gradients = (part[7 * rank // world_size : 7 * (rank + 1) // world_size] for part in whole_batch())
    images = images.clone().requires_grad_()
    layer = synchronised(nn.Sequential(nn.BatchNorm2d(5)))
    values = layer(images)
    values.backward(gradients)
    assert images.grad is not None
    (scales, _) = layer.parameters()
    assert scales.grad is not None
    return values.detach(), images.grad, scales.grad, layer.state_dict()


@pytest.mark.parametrize("world_size", [2, 3])
def test_shares_are_normalised_as_the_whole_batch_would_be(world_size: int) -> None:
    """Values, gradients and running statistics, with shares of unequal sizes."""
    values, image_gradients, scale_gradients, statistics = normalised(0, 1)
    shares: list[Result] = on_ranks(normalised, world_size)
    torch.testing.assert_close(torch.cat([share[0] for share in shares]), values, atol=1e-4, rtol=0)
    torch.testing.assert_close(torch.cat([share[1] for share in shares]), image_gradients, atol=1e-4, rtol=0)
    torch.testing.assert_close(sum(share[2] for share in shares), scale_gradients, atol=1e-4, rtol=0)
    for share in shares:
        torch.testing.assert_close(share[3], statistics)


def in_pieces(rank: int, world_size: int) -> Result:
    normalization.PIECE = 200  # of 80 numbers a picture
    return normalised(rank, world_size)


def test_large_batches_are_normalised_piece_by_piece() -> None:
    values, image_gradients, _, statistics = normalised(0, 1)
    shares: list[Result] = on_ranks(in_pieces, 2)
    torch.testing.assert_close(torch.cat([share[0] for share in shares]), values, atol=1e-4, rtol=0)
    torch.testing.assert_close(torch.cat([share[1] for share in shares]), image_gradients, atol=1e-4, rtol=0)
    for share in shares:
        torch.testing.assert_close(share[3], statistics)


def saved_bytes(rank: int, world_size: int, synchronise: bool) -> int:
    """Bytes of what a layer keeps for the backward pass, without the weights."""
    layer: nn.Module = nn.Sequential(nn.BatchNorm2d(8))
    layer = synchronised(layer) if synchronise else layer
    kept: list[int] = []

    def pack(tensor: Tensor) -> Tensor:
        kept.append(tensor.nbytes * (tensor.numel() > 8))
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), torch.autocast("cpu", torch.bfloat16):
        layer(torch.randn(4, 8, 6, 6, dtype=torch.bfloat16, requires_grad=True))
    return sum(kept)


def test_as_much_is_kept_for_the_backward_pass_as_by_one_rank_alone() -> None:
    assert on_ranks(saved_bytes, 2, True) == on_ranks(saved_bytes, 2, False) == [4 * 8 * 36 * 2] * 2


def sixteen_bits(rank: int, world_size: int) -> torch.dtype:
    """Of what a layer gives under autocast. Afterwards rank 0 alone evaluates: if it asked others it would hang."""
    network = synchronised(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)))
    with torch.autocast("cpu", torch.bfloat16):
        given: Tensor = network(torch.randn(2, 3, 8, 8))
    if rank == 0:
        network.eval()(torch.ones(1, 3, 8, 8))
    return given.dtype


def test_sixteen_bits_stay_sixteen_bits_and_evaluation_asks_nobody() -> None:
    assert on_ranks(sixteen_bits, 2) == [torch.bfloat16] * 2


def test_without_other_ranks_nothing_changes() -> None:
    network = nn.Sequential(nn.BatchNorm2d(3))
    assert type(synchronised(network)[0]) is nn.BatchNorm2d  # type: ignore[index]


class _Other(nn.BatchNorm1d):
    pass


def refused(rank: int, world_size: int) -> str:
    with pytest.raises(InfeasibleError) as refusal:
        synchronised(nn.Sequential(nn.BatchNorm1d(5), _Other(5)))
    return str(refusal.value)


def test_a_layer_of_a_class_of_its_own_is_refused_by_name() -> None:
    assert all("1 is a _Other, of which only PyTorch's own are known" in text for text in on_ranks(refused, 2))


def of_any_kind(rank: int, world_size: int) -> list[Tensor]:
    """By this rank's share, of layers with and without weights, momentum and running statistics."""
    torch.manual_seed(0)
    layers = [
        (nn.BatchNorm1d(5), torch.randn(8, 5)),
        (nn.BatchNorm1d(5, affine=False), torch.randn(8, 5, 3)),
        (nn.BatchNorm2d(5, momentum=None), torch.randn(8, 5, 3, 3)),
        (nn.BatchNorm3d(5, track_running_stats=False), torch.randn(8, 5, 2, 2, 2)),
    ]
    found = []
    for layer, whole in layers:
        share = whole[8 * rank // world_size : 8 * (rank + 1) // world_size]
        found.append(synchronised(nn.Sequential(layer))(share).detach())
    return found


def test_layers_of_any_dimension_and_kind_are_normalised_as_the_whole_batch_would_be() -> None:
    shares: list[list[Tensor]] = on_ranks(of_any_kind, 2)
    for whole, *parts in zip(of_any_kind(0, 1), *shares, strict=True):
        torch.testing.assert_close(torch.cat(parts), whole, atol=1e-5, rtol=0)
