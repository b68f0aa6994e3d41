"""Workload: a classification network of torchvision on a folder of pictures.

The middle square of each picture is resized to 8/7 of the size wanted. A part of that is cut out at random and flipped
at random, or cut out in the middle for evaluation. Both loaders give the same pictures, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, cast
from weakref import WeakValueDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import Dataset

from trainables.contract import Data, DataError, InfeasibleError
from trainables.image_folder_settings import ImageFolderSettings
from trainables.machine.array_cache import Arrays, cached_arrays, default_folder
from trainables.plan import Batch, Batches, EmptyBatches, Indices, Plan
from trainables.process_limits import allowed_cores
from trainables.sample_shape import SampleShape
from trainables.samples import loaders, picture_folder, picture_source
from trainables.samples.in_order import choices_in_order, evaluated_in_order
from trainables.samples.split import split
from trainables.samples.transfer import copied
from trainables.samples.worker_batches import Choices, LoadFailure, WorkerBatches
from trainables.seeding import restored_random_state
from trainables.settings import Settings
from trainables.stages import Timeline
from trainables.workload import EvaluationPart
from trainables.workloads.classification import loss as loss
from trainables.workloads.classification import measures as measures
from trainables.workloads.classification import units_per_sample as units_per_sample

UNIT = "images"
MEASURES = ("val_accuracy", "val_loss")
VIEWS = None
VERSION = 1
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet
LOADED_COPIES = 2  # of a batch as floats: its pictures, and the stacked batch

Bytes = NDArray[np.uint8]


def training_indices(data: Data) -> Indices:
    """Return the indices of the training pictures, without those for validation."""
    return split(_labels(data, "train"), data)[0]


def training_count(data: Data) -> int:
    """Return the number of training pictures."""
    return picture_source.training_count(data)[0]


def sample_shape(settings: Settings, data: Data) -> SampleShape:
    """Return the shape of a normalised picture and its class."""
    size = _own(settings).image_size
    picture, label = torch.empty(3, size, size, device="meta"), torch.empty((), dtype=torch.int64, device="meta")
    return SampleShape(picture, label, _files(data.root or "", "train")[1])


def example(settings: Settings, data: Data, size: int) -> Batch:
    """Return a batch of pictures of random numbers, all of class 0."""
    return sample_shape(settings, data).example(size, "cpu")


def network(settings: Settings, shape: SampleShape) -> nn.Module:
    """Build torchvision's network with new weights; the auxiliary outputs of two of them are left out.

    Raises:
        InfeasibleError: it takes no pictures of this size.
    """
    own = _own(settings)
    _check_size(own.network, own.image_size)
    return _network(own.network, own.image_size, shape.num_classes)


@lru_cache(maxsize=64)
def _check_size(name: str, image_size: int) -> None:
    """Check that a network takes pictures of this size, with one that has no data."""
    try:
        with restored_random_state(), torch.device("meta"), torch.no_grad():
            _network(name, image_size, 2).eval()(torch.empty(1, 3, image_size, image_size))
    except NotImplementedError:
        return  # it cannot be built without data
    except (AssertionError, RuntimeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise InfeasibleError(f"network {name}: image_size {image_size} is not possible: {reason}") from error


def _network(name: str, image_size: int, num_classes: int) -> nn.Module:
    from torchvision.models import get_model

    arguments: dict[str, Any] = {"weights": None, "num_classes": num_classes}
    if name in ("googlenet", "inception_v3"):
        arguments |= {"aux_logits": False, "init_weights": True}
    if name.startswith("vit_"):
        arguments["image_size"] = image_size
    if name.startswith("maxvit"):
        arguments["input_size"] = (image_size, image_size)
    found: nn.Module = get_model(name, **arguments)
    return found


def tune(network: nn.Module, settings: Settings, batch_size: int) -> None:
    """Select nothing: the kernels are PyTorch's."""


def training_batches(settings: Settings, data: Data, plan: Plan, device: torch.device) -> Batches:
    """Create the loader that the settings name."""
    own = _own(settings)
    if plan.share.number is None:
        return EmptyBatches(plan, sample_shape(settings, data).empty(0, device))
    if own.loader == "memory":
        return _MemoryBatches(data, own, plan, device)
    pictures = _EachPicture(data, "train", own.image_size)
    drawn = partial(loaders.choices, margin=_margin(own))
    return _worker_batches(pictures, drawn, own, data, plan, device, own.num_workers)


def evaluation_batches(
    settings: Settings, data: Data, part: EvaluationPart, device: torch.device, rank: int, world_size: int
) -> Iterator[Batch]:
    """Return this rank's batches of validation or test pictures, decoded as they are for training."""
    own = _own(settings)
    kept: picture_folder.Part = "test" if part == "test" else "train"
    labels = _labels(data, kept)
    indices = np.arange(len(labels)) if part == "test" else split(labels, data)[1]
    batch_size = evaluation_batch_size(settings, -(-settings.batch_size // world_size))
    in_memory = own.loader == "memory" and part == "validation"  # decoded with the training pictures
    num_workers, corner = 0 if in_memory else own.loader_processes, _margin(own) // 2
    middles = partial(choices_in_order, choice=lambda index: (index, corner, corner, False))

    def create(plan: Plan) -> Batches:
        decoded_once = _decoded_once(data, own.image_size) if in_memory else None
        pictures = _EachPicture(data, kept, own.image_size, decoded_once)
        return _worker_batches(pictures, middles, own, data, plan, device, num_workers)

    return evaluated_in_order(indices[rank::world_size], batch_size, device, create)


def _worker_batches(
    pictures: _EachPicture,
    choices: Choices,
    own: ImageFolderSettings,
    data: Data,
    plan: Plan,
    device: torch.device,
    num_workers: int,
) -> WorkerBatches:
    return WorkerBatches(
        pictures,
        choices,
        plan,
        device,
        num_workers=num_workers,
        pin_memory=own.pin_memory,
        bytes_per_sample=sample_shape(own, data).bytes_per_sample,
        explain=_reason,
    )


def _reason(error: Exception, samples: Any) -> str:
    return str(error)  # all pictures have one shape


def _margin(own: ImageFolderSettings) -> int:
    return resized(own.image_size) - own.image_size


def evaluation_batch_size(settings: Settings, batch: int) -> int:
    """Return as many as pass through the network together in training."""
    return -(-batch // settings.accumulation_steps)


def plain(settings: Settings, device_type: str) -> Settings:
    """Return the settings: none changes the network without changing a tensor."""
    return settings


def loaded_bytes(settings: Settings, shape: SampleShape, batch: int, device_type: str) -> int:
    """Return the bytes of a batch and of the pictures that it is made of; on CUDA those that are copied there."""
    if device_type == "cpu":
        return LOADED_COPIES * shape.bytes_per_sample * batch
    size = _own(settings).image_size
    return (3 * size**2 if _own(settings).loader == "memory" else shape.bytes_per_sample) * batch


def kept_count(data: Data, device_type: str) -> int:
    """Return the number of pictures to train on and to validate with, which are decoded once."""
    return sum(map(len, split(_labels(data, "train"), data)))


def kept_bytes(settings: Settings, kept_samples: int, device_type: str) -> int:
    """Return the bytes of the decoded pictures that stay in host memory."""
    own = _own(settings)
    return 3 * resized(own.image_size) ** 2 * kept_samples * (own.loader == "memory" and device_type == "cpu")


def resized(image_size: int) -> int:
    """Return the shorter side of a picture from which a square of `image_size` is cut."""
    return image_size * 8 // 7


def decoded(path: Path, image_size: int) -> Bytes:
    """Return a picture's middle, shape (side, side, 3), with side as in `resized`.

    Raises:
        DataError: see `picture_folder.rgb`.
    """
    from PIL import Image, ImageOps

    side = resized(image_size)
    return np.asarray(ImageOps.fit(picture_folder.rgb(path, enough=side), (side, side), Image.Resampling.BILINEAR))


def _own(settings: Settings) -> ImageFolderSettings:
    return cast(ImageFolderSettings, settings)


@lru_cache(maxsize=4)
def _files(root: str, part: picture_folder.Part) -> tuple[list[picture_folder.PictureFile], int]:
    return picture_folder.picture_files(Path(root), part)


def _labels(data: Data, part: picture_folder.Part) -> NDArray[np.int64]:
    return np.array([file.label for file in _files(data.root or "", part)[0]], dtype=np.int64)


class _EachPicture(Dataset[tuple[Tensor, int]]):
    """Pictures cut out, flipped and normalised one by one, of files or as they were `decoded_once`."""

    def __init__(
        self, data: Data, part: picture_folder.Part, image_size: int, decoded_once: _Decoded | None = None
    ) -> None:
        self._files, self._size, self._decoded = _files(data.root or "", part)[0], image_size, decoded_once

    def __getitems__(self, choices: list[loaders.Choice]) -> Any:
        """Return the samples, or why one cannot be loaded."""
        normalized = loaders.normalization(torch.device("cpu"), MEAN, STD)
        try:
            pixels = [self._pixels(*choice) for choice in choices]
        except DataError as error:
            return LoadFailure(str(error))
        images = [normalized(torch.from_numpy(each).permute(2, 0, 1)).contiguous() for each in pixels]
        return list(zip(images, (self._files[index].label for index, *_ in choices), strict=True))

    def _pixels(self, index: int, top: int, left: int, flipped: bool) -> Bytes:
        whole = self._decoded.image(index) if self._decoded else decoded(self._files[index].path, self._size)
        return np.ascontiguousarray(_cut(whole, top, left, flipped, self._size))


class _MemoryBatches(Batches):
    """Batches gathered from pictures that were decoded once, and augmented at once."""

    def __init__(self, data: Data, own: ImageFolderSettings, plan: Plan, device: torch.device) -> None:
        self._decoded = _decoded_once(data, own.image_size)
        self._size, self._plan, self._device = own.image_size, plan, device
        self._pin_memory = own.pin_memory and device.type == "cuda"
        self._normalized = loaders.normalization(device, MEAN, STD)

    def epoch(self, epoch: int, timeline: Timeline) -> Iterator[Batch]:
        draws = loaders.share_drawn(self._plan, epoch, resized(self._size) - self._size)
        for images, labels in copied(map(self._batch, draws), self._device, timeline):
            yield self._normalized(images).contiguous(), labels

    def _batch(self, draws: loaders.Draws) -> tuple[Tensor, Tensor]:
        images = np.empty((len(draws.indices), self._size, self._size, 3), dtype=np.uint8)
        choices = zip(draws.indices.tolist(), draws.corners.tolist(), draws.flips.tolist(), strict=True)
        for place, (index, (top, left), flipped) in enumerate(choices):
            images[place] = _cut(self._decoded.image(index), top, left, flipped, self._size)
        labels = torch.from_numpy(self._decoded.labels[draws.indices])
        batch = torch.from_numpy(images).permute(0, 3, 1, 2), labels
        return (batch[0].pin_memory(), batch[1].pin_memory()) if self._pin_memory else batch


def _cut(pixels: Bytes, top: int, left: int, flipped: bool, size: int) -> Bytes:
    """Return a square of a decoded picture as a view, perhaps mirrored."""
    square = pixels[top : top + size, left : left + size]
    return square[:, ::-1] if flipped else square


@dataclass(frozen=True, eq=False)
class _Decoded:
    """Decoded pictures. `rows`, (num_files,): their places in `images`; `labels`, (num_files,), of all files."""

    images: Bytes
    rows: Indices
    labels: NDArray[np.int64]

    def image(self, index: int) -> Bytes:
        """Return the picture of a file."""
        found: Bytes = self.images[self.rows[index]]
        return found


_held: WeakValueDictionary[tuple[Data, int], _Decoded] = WeakValueDictionary()


def _decoded_once(data: Data, image_size: int) -> _Decoded:
    """Return the pictures to train on and to validate with as bytes: those that somebody holds, or the disk cache's.

    Where the disk cache cannot be written, they are decoded into memory.
    """
    if (found := _held.get((data, image_size))) is None:
        _held[data, image_size] = found = _decode(data, image_size)
    return found


def _decode(data: Data, image_size: int) -> _Decoded:
    every, labels = _files(data.root or "", "train")[0], _labels(data, "train")
    used = np.sort(np.concatenate(split(labels, data)))
    files, rows = [every[i] for i in used], np.full(len(every), -1)
    rows[used] = np.arange(len(used))
    source = [
        "image_folder",
        picture_folder.VERSION,
        image_size,
        [(str(f.path), f.label, f.size, f.mtime_ns) for f in files],
    ]

    def make() -> Arrays:
        images = np.empty((len(files), resized(image_size), resized(image_size), 3), dtype=np.uint8)
        with ThreadPoolExecutor(len(allowed_cores())) as threads:
            for place, pixels in enumerate(threads.map(lambda f: decoded(f.path, image_size), files)):
                images[place] = pixels
        return {"images": images}

    return _Decoded(cached_arrays(source, make, default_folder())["images"], rows, labels)
