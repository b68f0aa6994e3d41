"""Workload: what is trained. Network, loss, samples and validation; the rest of a training is the same for all."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, Protocol, cast

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from trainables.contract import Data
from trainables.plan import Batch, Batches, Indices, Plan
from trainables.sample_shape import SampleShape
from trainables.settings import Settings

EvaluationPart = Literal["validation", "test"]


@dataclass(frozen=True)
class Views:
    """Versions of inputs whose outputs are averaged at the test (test-time augmentation).

    `of` returns the versions of a batch; `weights` has, by the end of the metrics' names, the weight of each version.
    """

    of: Callable[[Any], list[Any]]
    weights: Mapping[str, tuple[float, ...]]


class Workload(Protocol):
    """A module or an object with these names."""

    UNIT: str  # of the rate: `images` gives images_per_second
    MEASURES: tuple[str, ...]  # names of what `measures` returns, such as `val_loss`
    VIEWS: Views | None  # of test inputs
    VERSION: int  # of the network's kernels; stored measurements of another version are worthless

    def training_indices(self, data: Data) -> Indices:
        """Return the indices of the training samples.

        Raises:
            DataError: there are none, or they cannot be read.
        """

    def training_count(self, data: Data) -> int:
        """Return the number of training samples, if possible without reading any."""

    def sample_shape(self, settings: Settings, data: Data) -> SampleShape:
        """Return the shape of a training sample."""

    def example(self, settings: Settings, data: Data, size: int) -> Batch:
        """Return a batch of `size` samples that the network can process: invented ones, or copies of one."""

    def units_per_sample(self, data: Data) -> float:
        """Return the mean units of a sample, such as tokens."""

    def network(self, settings: Settings, shape: SampleShape) -> nn.Module:
        """Build the network, on PyTorch's current device."""

    def tune(self, network: nn.Module, settings: Settings, batch_size: int) -> None:
        """Select the kernels of the network, which is on its device; `batch_size`: that pass through it together."""

    def loss(self, outputs: Any, targets: Any, settings: Settings) -> Tensor:
        """Return the mean loss over these samples."""

    def measures(self, outputs: Any, targets: Any) -> Mapping[str, Tensor]:
        """Return the validation metrics by name, as values whose mean is reported."""

    def training_batches(self, settings: Settings, data: Data, plan: Plan, device: torch.device) -> Batches:
        """Create the loader that the settings select.

        Raises:
            InfeasibleError: it cannot run on `device`.
        """

    def evaluation_batches(
        self, settings: Settings, data: Data, part: EvaluationPart, device: torch.device, rank: int, world_size: int
    ) -> Iterator[Batch]:
        """Return this rank's part of all samples, each once over the ranks, in order and not augmented.

        The samples are found at once, not with the first batch, because the ranks meet in between.
        """

    def evaluation_batch_size(self, settings: Settings, batch: int) -> int:
        """Return the samples per evaluation batch in a process whose share of a training batch is `batch` samples."""

    def plain(self, settings: Settings, device_type: str) -> Settings:
        """Return settings with the same tensors and without own parts that change no tensor's size."""

    def loaded_bytes(self, settings: Settings, shape: SampleShape, batch: int, device_type: str) -> int:
        """Return the bytes of a batch of `batch` samples while it is loaded; on CUDA those that are copied there."""

    def kept_count(self, data: Data, device_type: str) -> int | None:
        """Return the number of samples that a loader holds which keeps them in memory; None: those trained on."""

    def kept_bytes(self, settings: Settings, kept_samples: int, device_type: str) -> int:
        """Return the bytes of samples that stay in memory; 0 if the loader keeps none of these `kept_samples`."""


@cache
def _workload(name: str) -> Workload:
    if name.endswith(".py"):
        return cast(Workload, importlib.import_module("trainables.workloads.own_file").OwnFile(name))
    return cast(Workload, importlib.import_module(name))


def workload_of(settings: Settings) -> Workload:
    """Return the workload of these settings, imported on first use.

    Raises:
        ImportError, LookupError: it cannot be imported.
    """
    return _workload(settings.workload)


def num_samples(targets: Any) -> int:
    """Return the number of samples of a batch with these targets."""
    return len(targets) if isinstance(targets, Tensor) else len(tree_leaves(targets)[0])
