"""Workload: what a user's training file defines."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.data import Dataset, default_collate

from trainables.contract import Data, DataError
from trainables.declared import declaration_of
from trainables.machine.exception_chain import described
from trainables.machine.peak_memory import resident_bytes
from trainables.own_module import imported
from trainables.plan import Batch, Batches, EmptyBatches, Indices, Plan
from trainables.sample_shape import SampleShape, shape_of
from trainables.samples.in_order import choices_in_order, evaluated_in_order
from trainables.samples.worker_batches import Choices, Collate, LoadError, LoadFailure, WorkerBatches
from trainables.seeding import restored_random_state, seed_all
from trainables.settings import Settings
from trainables.stages import Timeline
from trainables.workload import EvaluationPart, num_samples
from trainables.workloads.sample_values import MOST_SAMPLES, mistake_of, mixed_samples

SUBSET_SEED = 20090408  # fixed, so that all trials of all runs see the same part of the samples
UNITS_OF_SAMPLES = 256  # over which the units of a sample are averaged, in each process over the same ones
UNREADABLE = (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError)
LOADED_COPIES = 2  # of a batch: its samples, and the stacked batch


class OwnFile:
    """A `Workload` by the functions of a file."""

    VIEWS = None
    VERSION = 1

    def __init__(self, path: str) -> None:
        """Import the file by its name, with its folder on the path of this process and of its children.

        Raises:
            Exception: whatever the file raises.
        """
        self._path = Path(path)
        declaration = declaration_of(self._path)
        self.UNIT, self.MEASURES = declaration.unit, tuple(declaration.metrics)
        self._own = tuple(declaration.parameters)
        self._module = imported(self._path)
        self._datasets: dict[tuple[str, str | None], Any] = {}
        self._shapes: dict[str | None, SampleShape] = {}
        self._units: dict[tuple[str | None, int | None], float] = {}
        self._loss_is_checked = False
        # shapes of outputs and targets that were checked, and whether there were samples beside those measured alone
        self._measured_shapes: set[tuple[Any, ...]] = set()
        self._kept_bytes = 0

    def training_indices(self, data: Data) -> Indices:
        """Return the indices of the training samples: all, or `data.train_images` of them."""
        return _some(len(self._dataset("train", data)), data.train_images)

    def training_count(self, data: Data) -> int:
        """Return the number of training samples."""
        return len(self.training_indices(data))

    def sample_shape(self, settings: Settings, data: Data) -> SampleShape:
        """Return the shape of the first training sample, as the file's `collate` arranges it."""
        if data.root not in self._shapes:
            inputs, targets = tree_map(lambda x: x[0], self._batch_of(data, 0))
            self._shapes[data.root] = shape_of(inputs, targets)
        return self._shapes[data.root]

    def example(self, settings: Settings, data: Data, size: int) -> Batch:
        """Return copies of the first training sample: invented numbers may be no lengths, words or masks."""
        inputs, targets = tree_map(lambda x: x.repeat_interleave(size, 0), self._batch_of(data, 0))
        return inputs, targets

    def units_per_sample(self, data: Data) -> float:
        """Return the mean of what the file's `units` says of some training samples, evenly chosen; 1 without it."""
        if not hasattr(self._module, "units"):
            return 1
        key = data.root, data.train_images
        if key not in self._units:
            indices = self.training_indices(data)
            chosen = indices[np.linspace(0, len(indices) - 1, min(len(indices), UNITS_OF_SAMPLES), dtype=int)]
            samples = [tree_map(lambda x: x[0], self._batch_of(data, index)) for index in chosen.tolist()]
            self._units[key] = fmean(int(self._module.units(inputs, targets)) for inputs, targets in samples)
            if not self._units[key] > 0:
                raise DataError(f"{self._path.name}: units says {self._units[key]:g} of a sample, expected more than 0")
        return self._units[key]

    def network(self, settings: Settings, shape: SampleShape) -> nn.Module:
        """Build the file's network, as a chain of its `blocks` if it says which they are."""
        network = self._module.network(**{name: getattr(settings, name) for name in self._own})
        if not isinstance(network, nn.Module):
            raise TypeError(f"{self._path.name}: network returned {type(network).__name__}, expected an nn.Module")
        for name, tensor in itertools.chain(network.named_parameters(), network.named_buffers()):
            if is_lazy(tensor):
                raise TypeError(
                    f"{self._path.name}: {name} has no shape yet; let network() pass an example through its lazy "
                    "modules, or give their sizes"
                )
        for name, module in network.named_modules():
            if getattr(module, "sparse", False):  # nn.Embedding, nn.EmbeddingBag
                raise TypeError(
                    f"{self._path.name}: {name} has sparse gradients, which SGD with momentum and AdamW cannot use; "
                    "make it sparse=False, or write a loop of your own with torch.optim.SparseAdam"
                )
        if not any(weight.requires_grad for weight in network.parameters()):
            raise TypeError(f"{self._path.name}: network returned one without a weight that can be trained")
        if not network.training:  # as transformers' from_pretrained returns it
            network.train()
        return nn.Sequential(*self._module.blocks(network)) if hasattr(self._module, "blocks") else network

    def tune(self, network: nn.Module, settings: Settings, batch_size: int) -> None:
        """Select nothing: the kernels are PyTorch's."""

    def loss(self, outputs: Any, targets: Any, settings: Settings) -> Tensor:
        """Return the file's loss."""
        found = self._module.loss(outputs, targets)
        if not isinstance(found, Tensor) or found.ndim:
            what = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
            raise TypeError(f"{self._path.name}: loss returned {what}, expected a tensor with one number")
        if not (self._loss_is_checked or torch.compiler.is_compiling() or type(found) is not Tensor):
            if mistake := mixed_samples(self._module.loss, outputs, targets):
                raise TypeError(f"{self._path.name}: loss: {mistake}")
            self._loss_is_checked = True
        return found

    def measures(self, outputs: Any, targets: Any) -> Mapping[str, Tensor]:
        """Return the file's measures, which are those that it declares, and values of each sample."""
        found = self._measured(outputs, targets)
        leaves = (leaf for leaf in tree_leaves((outputs, targets)) if isinstance(leaf, Tensor))
        shapes = num_samples(targets) > MOST_SAMPLES, *(leaf.shape[1:] for leaf in leaves)
        if shapes not in self._measured_shapes:
            if mistake := mistake_of(self._measured, outputs, targets, found):
                raise TypeError(f"{self._path.name}: measures: {mistake}")
            self._measured_shapes.add(shapes)
        return found

    def _measured(self, outputs: Any, targets: Any) -> Mapping[str, Tensor]:
        found = self._module.measures(outputs, targets)
        if not isinstance(found, Mapping) or set(found) != set(self.MEASURES):
            names = ", ".join(found) if isinstance(found, Mapping) else type(found).__name__
            declared = ", ".join(self.MEASURES)
            raise TypeError(f"{self._path.name}: measures returned {names}; METRICS declares {declared}")
        return {name: torch.as_tensor(value) for name, value in found.items()}

    def training_batches(self, settings: Settings, data: Data, plan: Plan, device: torch.device) -> Batches:
        """Create loader processes, or load in this process."""
        if plan.share.number is None:
            return EmptyBatches(plan, self.sample_shape(settings, data).empty(0, device))
        batches = self._batches("train", _seeded_order, settings, data, plan, device)
        return _Augmented(batches, self._module.augment) if hasattr(self._module, "augment") else batches

    def evaluation_batches(
        self, settings: Settings, data: Data, part: EvaluationPart, device: torch.device, rank: int, world_size: int
    ) -> Iterator[Batch]:
        """Return this rank's part of the samples, by as many loader processes as training has."""
        all_samples = _some(len(self._dataset(part, data)), data.val_images or None if part == "validation" else None)
        batch_size = self.evaluation_batch_size(settings, -(-settings.batch_size // world_size))
        order = partial(choices_in_order, choice=lambda index: (index, index))  # the index is the seed, too

        def create(plan: Plan) -> Batches:
            return self._batches(part, order, settings, data, plan, device)

        return evaluated_in_order(all_samples[rank::world_size], batch_size, device, create)

    def evaluation_batch_size(self, settings: Settings, batch: int) -> int:
        """Return as many as pass through the network together in training."""
        return -(-batch // settings.accumulation_steps)

    def plain(self, settings: Settings, device_type: str) -> Settings:
        """Return the settings: all own ones may change a tensor's size."""
        return settings

    def loaded_bytes(self, settings: Settings, shape: SampleShape, batch: int, device_type: str) -> int:
        """Return the bytes of a batch and of the samples that it is made of; on CUDA those that are copied there."""
        return (LOADED_COPIES if device_type == "cpu" else 1) * shape.bytes_per_sample * batch

    def kept_count(self, data: Data, device_type: str) -> int | None:
        """Return None: what stays in memory is measured, not counted."""

    def kept_bytes(self, settings: Settings, kept_samples: int, device_type: str) -> int:
        """Return the host memory that the datasets took when they were made."""
        return self._kept_bytes if device_type == "cpu" else 0

    def _batches(
        self, part: str, order: Choices, settings: Settings, data: Data, plan: Plan, device: torch.device
    ) -> WorkerBatches:
        return WorkerBatches(
            _Samples(self._dataset(part, data), part, self._path),
            order,
            plan,
            device,
            num_workers=settings.num_workers,
            pin_memory=settings.pin_memory,
            bytes_per_sample=self.sample_shape(settings, data).bytes_per_sample,
            collate=self._collate,
            explain=partial(_unlike, self._path, self._collate is default_collate),
        )

    @property
    def _collate(self) -> Collate:
        collate: Collate = getattr(self._module, "collate", default_collate)
        return collate

    def _dataset(self, part: str, data: Data) -> Any:
        """Return a part of the samples.

        Raises:
            DataError: it is no dataset, or empty.
        """
        key = part, data.root
        if key not in self._datasets:
            before = resident_bytes()
            with restored_random_state():
                seed_all(SUBSET_SEED)  # a file that divides at random gives all parts of one division
                try:
                    found = self._module.dataset(part, data.root)
                except UNREADABLE as error:
                    raise DataError(described(error, self._path.parent)) from error
                except (TypeError, AttributeError) as error:
                    if data.root is not None:
                        raise
                    what = described(error, self._path.parent)
                    raise DataError(f"{what}; root is None: data.root or --root names the folder") from error
            self._kept_bytes += max(0, resident_bytes() - before)
            what = f'{self._path.name}: dataset("{part}")'
            if not hasattr(found, "__getitem__") or not hasattr(found, "__len__"):
                raise DataError(f"{what} returned {type(found).__name__}, expected samples with a length and an index")
            if not len(found):
                raise DataError(f"{what} is empty")
            self._datasets[key] = found
        return self._datasets[key]

    def _batch_of(self, data: Data, index: int) -> Batch:
        """Return a batch of one training sample."""
        samples = _Samples(self._dataset("train", data), "train", self._path)
        loaded = samples.__getitems__([(index, index)])
        if isinstance(loaded, LoadFailure):
            raise LoadError(loaded.reason)
        found = self._collate(loaded)
        for leaf in tree_leaves(found):
            if not isinstance(leaf, Tensor):
                raise DataError(
                    f"{self._path.name}: a sample has a {type(leaf).__name__}, expected tensors and numbers"
                )
            if not leaf.ndim:
                raise DataError(f"{self._path.name}: collate returned a single number, expected a row for each sample")
        if not (isinstance(found, Sequence) and len(found) == 2):
            what = f"{self._path.name}: a batch is a {type(found).__name__}, expected a pair of inputs and targets"
            raise DataError(what)
        inputs, targets = found
        return inputs, targets


def _some(count: int, most: int | None) -> Indices:
    """Return all indices, or `most` of them at random, the same each time."""
    if most is None or most >= count:
        return np.arange(count)
    return np.sort(np.random.default_rng(SUBSET_SEED).permutation(count)[:most])


def _seeded_order(plan: Plan, epoch: int) -> Iterator[list[tuple[int, int]]]:
    """Yield the share's samples, each with the seed of its random choices."""
    order, rng = plan.order(epoch)
    seeds = rng.integers(0, 2**32, size=len(order))
    for mine in plan.slices():
        yield list(zip(order[mine].tolist(), seeds[mine].tolist(), strict=True))


class _Loaded(list[Any]):
    """Samples of a batch, with the part of the data that they are of and their choices."""

    def __init__(self, part: str, choices: Sequence[tuple[int, int]]) -> None:
        super().__init__()
        self._part, self._choices = part, choices

    def name(self, place: int) -> str:
        """Return how a message names the sample at a place in the batch: by its index in the dataset."""
        return f"{self._part} sample {self._choices[place][0]}"


class _Samples(Dataset[Any]):
    """Samples of a dataset, whose random choices depend on the sample's seed, not on the process that loads it."""

    def __init__(self, dataset: Any, part: str, path: Path) -> None:
        self._dataset, self._part, self._path = dataset, part, path

    def __getitems__(self, choices: list[tuple[int, int]]) -> Any:
        """Return the samples, or why one cannot be loaded."""
        with restored_random_state():
            return self._loaded(choices)

    def _loaded(self, choices: list[tuple[int, int]]) -> Any:
        samples = _Loaded(self._part, choices)
        for index, seed in choices:
            seed_all(seed)
            try:
                sample = self._dataset[index]
            except Exception as error:
                return LoadFailure(f"{self._part} sample {index}: {described(error, self._path.parent)}")
            if not isinstance(sample, tuple | list) or len(sample) != 2:
                what = f"a {type(sample).__name__}" + (f" of {len(sample)}" if isinstance(sample, tuple | list) else "")
                place = f"{self._path.name}: {self._part} sample {index}"
                return LoadFailure(f"{place} is {what}, expected a pair of input and target")
            samples.append(sample)
        return samples


def _unlike(path: Path, is_stacked: bool, error: Exception, samples: Any) -> str:
    """Return what failed; `is_stacked`: by PyTorch's own collation, which numbers the samples within the batch."""
    text = described(error, path.parent)
    if is_stacked:
        text = re.sub(r"entry (\d+)", lambda found: samples.name(int(found[1])), text)
    return f"samples of {path.name} cannot be put together: {text}"


class _Augmented(Batches):
    """Batches that the file's `augment` changes on the device."""

    def __init__(self, batches: Batches, augment: Callable[[Batch], Batch]) -> None:
        self._batches, self._augment = batches, augment

    def epoch(self, epoch: int, timeline: Timeline) -> Iterator[Batch]:
        for batch in self._batches.epoch(epoch, timeline):
            self.plain = batch
            yield self._augment(batch)

    def close(self) -> None:
        self._batches.close()
