"""Batch normalisation over the whole batch, divided among several ranks: `batch_norm: synchronised`.

PyTorch's `SyncBatchNorm` supports no CPU, and on CUDA the host waits for the device in each of its layers.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


def synchronised(model: nn.Module) -> nn.Module:
    """Convert the network in place to statistics over the images of all ranks.

    Names and values of parameters and buffers stay, and so checkpoints remain valid. One rank alone changes nothing.
    """
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return model
    for module in model.modules():
        if (kind := SYNCHRONISED.get(type(module))) is not None:
            module.__class__ = kind
    return model


class _Synchronised(_BatchNorm):
    """Batch normalisation over ranks whose shares may differ in size.

    The biased variance normalises, the unbiased variance updates the running statistics.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Normalise (batch, channels, ...), in the type of `input`."""
        if not self.training:
            return super().forward(input)
        count, mean, variance = _over_ranks(input)
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            with torch.no_grad():
                self.num_batches_tracked += 1
                # without a momentum the plain mean of all batches
                part = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
                self.running_mean.lerp_(mean, part)
                self.running_var.lerp_(variance * (count / (count - 1)).to(variance.dtype), part)
        channels = (-1, *[1] * (input.ndim - 2))
        scale = torch.rsqrt(variance + self.eps)
        centred = input - mean.view(channels)
        if not self.affine:
            return (centred * scale.view(channels)).to(input.dtype)
        scaled = (self.weight * scale).view(channels)
        return torch.addcmul(self.bias.view(channels), centred, scaled).to(input.dtype)


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
    """Count, mean and biased variance per channel over all ranks; gradients flow back to all ranks."""
    here = input.numel() // input.shape[1]
    at_least_fp32 = torch.promote_types(input.dtype, torch.float32)
    variance, mean = torch.var_mean(input.to(at_least_fp32), dim=(0, *range(2, input.ndim)), correction=0)
    # Variance from sums of squares: cancellation is harmless in double precision, of one number per channel.
    variance, mean = variance.double(), mean.double()
    parts = torch.stack([torch.full_like(mean, here), here * mean, here * (variance + mean * mean)])
    count, total, squares = _SumOverRanks.apply(parts)
    mean = total / count
    return count, mean.to(at_least_fp32), (squares / count - mean * mean).to(at_least_fp32)


class _SumOverRanks(torch.autograd.Function):
    """Sum over ranks. Each rank's loss depends on all parts, so the gradient of a part is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, parts: Tensor) -> Tensor:
        total = parts.contiguous().clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return _SumOverRanks.forward(ctx, *gradients)
