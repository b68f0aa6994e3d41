"""Batch normalisation over the whole batch, whose pictures are on several ranks: `batch_norm: synchronised`.

On CUDA it is PyTorch's own, which runs nowhere else; on a CPU the one below.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


def synchronised(model: nn.Module, device: torch.device) -> nn.Module:
    """The same network, in place, with statistics that are those of all ranks' pictures together.

    Names and values of parameters and buffers stay, so checkpoints do too. Without other ranks nothing changes.
    """
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return model
    if device.type == "cuda":
        whole: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
        return whole
    for module in model.modules():
        if type(module) is nn.BatchNorm2d:
            module.__class__ = SynchronisedBatchNorm2d
    return model


class SynchronisedBatchNorm2d(nn.BatchNorm2d):
    """Every rank has some pictures, not equally many. Biased variance normalises, unbiased variance is remembered."""

    def forward(self, input: Tensor) -> Tensor:
        """(batch, channels, height, width), in the type of `input`."""
        if not self.training:
            return super().forward(input)
        count, mean, variance = _over_ranks(input)
        self._remember(count, mean.detach(), variance.detach())
        scale = self.weight * torch.rsqrt(variance + self.eps)
        centred = input - mean[:, None, None]
        return torch.addcmul(self.bias[:, None, None], centred, scale[:, None, None]).to(input.dtype)

    @torch.no_grad()
    def _remember(self, count: Tensor, mean: Tensor, variance: Tensor) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        assert self.momentum is not None
        self.num_batches_tracked += 1
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(variance * (count / (count - 1)).to(variance.dtype), self.momentum)


def _over_ranks(input: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Values per channel, their mean and their biased variance, over all ranks; gradients flow back to all ranks."""
    here = input.numel() // input.shape[1]
    at_least_fp32 = torch.promote_types(input.dtype, torch.float32)
    variance, mean = torch.var_mean(input.to(at_least_fp32), dim=(0, 2, 3), correction=0)
    # Sums of squares less squares of sums: in double precision, of one number per channel, that loses nothing.
    variance, mean = variance.double(), mean.double()
    parts = torch.stack([torch.full_like(mean, here), here * mean, here * (variance + mean * mean)])
    count, total, squares = _SumOverRanks.apply(parts)
    mean = total / count
    return count, mean.to(at_least_fp32), (squares / count - mean * mean).to(at_least_fp32)


class _SumOverRanks(torch.autograd.Function):
    """What a rank gives is in the losses of all: its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, parts: Tensor) -> Tensor:
        total = parts.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].contiguous().clone()
        dist.all_reduce(total)
        return total
