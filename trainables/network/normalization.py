"""Batch normalisation over the whole batch, divided among several ranks: `batch_norm: synchronised`.

PyTorch's `SyncBatchNorm` supports no CPU, and on CUDA the host waits for the device in each of its layers.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from trainables.contract import InfeasibleError

PIECE = 2**18  # numbers that are normalised at a time on a CPU


def synchronised(model: nn.Module) -> nn.Module:
    """Convert the network in place to statistics over the images of all ranks.

    Names and values of parameters and buffers stay, and so checkpoints remain valid. One rank alone changes nothing.

    Raises:
        InfeasibleError: a layer is of a class of its own.
    """
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return model
    for name, module in model.named_modules():
        if (kind := SYNCHRONISED.get(type(module))) is not None:
            module.__class__ = kind
        elif isinstance(module, _BatchNorm) and not isinstance(module, _Synchronised | nn.SyncBatchNorm):
            what = f"{name} is a {type(module).__name__}, of which only PyTorch's own are known"
            raise InfeasibleError(f"batch_norm synchronised: {what}; choose batch_norm local")
    return model


class _Synchronised(_BatchNorm):
    """Batch normalisation over ranks whose shares may differ in size.

    The biased variance normalises, the unbiased variance updates the running statistics.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Normalise (batch, channels, ...), in the type of `input`."""
        if not self.training:
            return super().forward(input)
        with torch.no_grad():
            count, mean, variance = _over_ranks(input)
            if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
                self.num_batches_tracked += 1
                # without a momentum the plain mean of all batches
                part = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
                self.running_mean.lerp_(mean, part)
                self.running_var.lerp_(variance * (count / (count - 1)).to(variance.dtype), part)
            inverse = torch.rsqrt(variance + self.eps)
        weight, bias = (self.weight, self.bias) if self.affine else (torch.ones_like(mean), torch.zeros_like(mean))
        normalised: Tensor = _Normalised.apply(input, weight, bias, mean, inverse, count)
        return normalised


class SynchronisedBatchNorm1d(_Synchronised, nn.BatchNorm1d):
    """Normalisation of (batch, channels) or (batch, channels, length) over ranks."""


class SynchronisedBatchNorm2d(_Synchronised, nn.BatchNorm2d):
    """Normalisation of (batch, channels, height, width) over ranks."""


class SynchronisedBatchNorm3d(_Synchronised, nn.BatchNorm3d):
    """Normalisation of (batch, channels, depth, height, width) over ranks."""


SYNCHRONISED: dict[type, type[_Synchronised]] = {
    nn.BatchNorm1d: SynchronisedBatchNorm1d,
    nn.BatchNorm2d: SynchronisedBatchNorm2d,
    nn.BatchNorm3d: SynchronisedBatchNorm3d,
}


def _over_ranks(input: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Count, mean and biased variance per channel over all ranks."""
    at_least_fp32 = torch.promote_types(input.dtype, torch.float32)
    parts = input.new_zeros((3, input.shape[1]), dtype=torch.float64)
    for piece in _pieces(input):
        here = piece.numel() // piece.shape[1]
        variance, mean = torch.var_mean(piece.to(at_least_fp32), dim=_all_but_channels(piece), correction=0)
        # Variance from sums of squares: cancellation is harmless in double precision, of one number per channel.
        variance, mean = variance.double(), mean.double()
        parts += torch.stack([torch.full_like(mean, here), here * mean, here * (variance + mean * mean)])
    dist.all_reduce(parts)
    count, total, squares = parts
    mean = total / count
    return count, mean.to(at_least_fp32), (squares / count - mean * mean).to(at_least_fp32)


def _all_but_channels(input: Tensor) -> tuple[int, ...]:
    return (0, *range(2, input.ndim))


def _pieces(input: Tensor) -> tuple[Tensor, ...]:
    """Divide a batch into parts that stay in a processor's cache, with copies in higher precision."""
    samples = len(input) if input.is_cuda else max(1, PIECE // max(1, input[0].numel()))
    return torch.split(input, samples)


class _Normalised(torch.autograd.Function):
    """Normalisation by statistics of all ranks. It keeps its input alone for the backward pass, as PyTorch's own does.

    Each rank's loss depends on the statistics, so that their gradients are summed over the ranks.
    """

    @staticmethod
    def forward(
        ctx: Any, input: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, inverse: Tensor, count: Tensor
    ) -> Tensor:
        ctx.save_for_backward(input, weight, mean, inverse, count)
        channels = (-1, *[1] * (input.ndim - 2))
        scale = weight * inverse
        scale, shift = scale.view(channels), (bias - mean * scale).view(channels)
        result = torch.empty_like(input)
        for piece, part in zip(_pieces(input), _pieces(result), strict=True):
            part.copy_(torch.addcmul(shift, piece.to(mean.dtype), scale))
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        input, weight, mean, inverse, count = ctx.saved_tensors
        channels, others = (-1, *[1] * (input.ndim - 2)), _all_but_channels(input)
        pieces = list(zip(_pieces(input), _pieces(gradients[0]), strict=True))
        sums = mean.new_zeros((2, len(mean)))
        for piece, part in pieces:
            gradient, centred = part.to(mean.dtype), piece.to(mean.dtype) - mean.view(channels)
            sums += torch.stack([gradient.sum(others), centred.mul_(gradient).sum(others) * inverse])
        of_bias, of_weight = sums.clone()
        dist.all_reduce(sums)
        of_all = sums / count.to(sums.dtype)
        scale, slope = (weight * inverse).view(channels), (of_all[1] * inverse).view(channels)
        result = torch.empty_like(input)
        for (piece, part), found in zip(pieces, _pieces(result), strict=True):
            centred = piece.to(mean.dtype) - mean.view(channels)
            found.copy_(centred.mul_(slope).add_(of_all[0].view(channels)).sub_(part).mul_(-scale))
        return result, of_weight, of_bias, None, None, None
