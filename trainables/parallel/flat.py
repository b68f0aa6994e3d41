"""Tensors side by side in one vector: what travels between ranks as one message instead of many."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def side_by_side(tensors: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """A vector of zeros, as long as all of them, and the part of it for each: a view of its shape and strides.

    They are dense, of one type and on one device.
    """
    sizes = [tensor.numel() for tensor in tensors]
    vector = tensors[0].detach().new_zeros(sum(sizes))
    parts = zip(torch.split(vector, sizes), tensors, strict=True)
    return vector, [part.as_strided(tensor.shape, tensor.stride()) for part, tensor in parts]
