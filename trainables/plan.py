"""Assignment of samples to the batches of each epoch, and the share of each batch that a process reads."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from trainables.contract import InfeasibleError
from trainables.stages import Timeline
from trainables.strategy_table import STRATEGIES

Indices = NDArray[np.int64]
Batch = tuple[Any, Any]  # inputs and targets: tensors, or nested tuples, lists and dicts of tensors


@dataclass(frozen=True)
class Share:
    """Part `number` (0, 1, ...) of each batch, divided into `of` parts of nearly equal size; None: no part."""

    number: int | None = 0
    of: int = 1

    def within(self, batch_size: int) -> tuple[int, int]:
        """Return the first position and the one after the last."""
        if self.number is None:
            return 0, 0
        return batch_size * self.number // self.of, batch_size * (self.number + 1) // self.of


def share_of(strategy: str, rank: int, world_size: int) -> Share:
    """Return what a rank reads of each batch; a process alone reads all of it."""
    if world_size == 1:
        return Share()
    readers = STRATEGIES[strategy].readers(world_size)
    return Share(readers.index(rank) if rank in readers else None, len(readers))


@dataclass(frozen=True)
class Plan:
    """Samples of the batches of each epoch, and the share of each batch that is read here."""

    indices: Indices
    batch_size: int  # global
    seed: int
    share: Share = Share()

    def __post_init__(self) -> None:
        if self.batch_size < self.share.of:
            raise InfeasibleError(f"batch_size {self.batch_size} is less than a sample for each of {self.share.of}")
        if self.batch_size > len(self.indices):
            raise InfeasibleError(f"batch_size {self.batch_size}: there are {len(self.indices):,} training samples")

    @property
    def num_batches(self) -> int:
        """Number of batches per epoch; an incomplete last one is dropped."""
        return len(self.indices) // self.batch_size

    def order(self, epoch: int) -> tuple[Indices, np.random.Generator]:
        """Return the samples of the epoch's batches for all shares, and the generator of further random choices."""
        rng = np.random.default_rng([self.seed, epoch])
        return rng.permutation(self.indices)[: self.num_batches * self.batch_size], rng

    def slices(self) -> Iterator[slice]:
        """Yield the position of each batch's share in an epoch's order."""
        first, last = self.share.within(self.batch_size)
        for start in range(0, self.num_batches * self.batch_size, self.batch_size):
            yield slice(start + first, start + last)


class Batches(Protocol):
    """Training batches, epoch by epoch."""

    plain: Batch | None = None  # the latest batch before it was augmented; None: it was not, or not on its own

    @abstractmethod
    def epoch(self, epoch: int, timeline: Timeline) -> Iterator[Batch]:
        """Yield this share of the epoch's batches, on the device."""

    def close(self) -> None:
        """End the loader processes, if there are any."""
        return


class EmptyBatches(Batches):
    """Batches without samples, with which a process that reads none takes part in each step."""

    def __init__(self, plan: Plan, empty: Batch) -> None:
        self._plan, self._empty = plan, empty

    def epoch(self, epoch: int, timeline: Timeline) -> Iterator[Batch]:
        """Yield the empty batch as often as the epoch has batches."""
        for _ in range(self._plan.num_batches):
            yield self._empty
