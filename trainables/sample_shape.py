"""Shapes and types of a sample's tensors, from which batches without data are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map


@dataclass(frozen=True, eq=False)
class SampleShape:
    """Inputs and targets of one sample: tensors of the meta device, or nested tuples, lists and dicts of them."""

    inputs: Any
    targets: Any
    num_classes: int = 0  # where the network's outputs depend on the data; else 0

    @property
    def key(self) -> str:
        """Text that is equal for equal shapes and types."""
        leaves, structure = tree_flatten((self.inputs, self.targets))
        return f"{structure} {[(tuple(x.shape), str(x.dtype)) for x in leaves]} {self.num_classes}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SampleShape) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def bytes_per_sample(self) -> int:
        """Bytes of the sample's tensors."""
        return sum(leaf.nbytes for leaf in tree_leaves((self.inputs, self.targets)))

    def empty(self, size: int, device: torch.device | str) -> tuple[Any, Any]:
        """Return a batch of `size` samples with undefined values."""
        return self._batch(lambda x: torch.empty(size, *x.shape, dtype=x.dtype, device=device))

    def example(self, size: int, device: torch.device | str) -> tuple[Any, Any]:
        """Return a batch of `size` samples: random numbers from 0 to 1, and zeros for whole numbers."""

        def values(like: Tensor) -> Tensor:
            shape = (size, *like.shape)
            if like.dtype.is_floating_point:
                return torch.rand(shape, dtype=like.dtype, device=device)
            return torch.zeros(shape, dtype=like.dtype, device=device)

        return self._batch(values)

    def _batch(self, make: Callable[[Tensor], Tensor]) -> tuple[Any, Any]:
        return tree_map(make, self.inputs), tree_map(make, self.targets)


def shape_of(inputs: Any, targets: Any) -> SampleShape:
    """Return the shape of a sample of tensors."""
    meta_inputs, meta_targets = tree_map(lambda x: torch.empty_like(x, device="meta"), (inputs, targets))
    return SampleShape(meta_inputs, meta_targets)
