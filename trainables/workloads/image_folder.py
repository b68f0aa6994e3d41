"""Workload: a classification network of torchvision on a folder of pictures.

Each picture is resized so that its shorter side is 8/7 of the size wanted; a square is cut out at random and flipped at
random, or cut out in the middle for evaluation. Both loaders give the same pictures, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import Dataset, default_collate

from trainables.contract import Data, DataError
from trainables.image_folder_settings import ImageFolderSettings
from trainables.machine.array_cache import Arrays, cached_arrays, default_folder
from trainables.plan import Batch, Batches, EmptyBatches, Indices, Plan
from trainables.process_limits import allowed_cores
from trainables.sample_shape import SampleShape
from trainables.samples import cifar10, loaders
from trainables.samples.transfer import copied
from trainables.samples.worker_batches import LoadFailure, WorkerBatches
from trainables.settings import Settings
from trainables.stages import Timeline
from trainables.workload import EvaluationPart

UNIT = "images"
MEASURES = ("val_accuracy", "val_loss")
VIEWS = None
VERSION = 1
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet
LOADED_COPIES = 2  # of a batch as floats: its pictures, and the stacked batch

Bytes = NDArray[np.uint8]


def training_indices(data: Data) -> Indices:
    """Return the indices of the training pictures, without those for validation."""
    return cifar10.split(_labels(data, "train"), data)[0]


def training_count(data: Data) -> int:
    """Return the number of training pictures."""
    return cifar10.training_count(data)[0]


def sample_shape(settings: Settings, data: Data) -> SampleShape:
    """Return the shape of a normalised picture and its class."""
    size = _own(settings).image_size
    picture, label = torch.empty(3, size, size, device="meta"), torch.empty((), dtype=torch.int64, device="meta")
    return SampleShape(picture, label, _files(data.root or "", "train")[1])


def units_per_sample(data: Data) -> int:
    """Return 1: the unit is a picture."""
    return 1


def network(settings: Settings, shape: SampleShape) -> nn.Module:
    """Build torchvision's network with new weights; the auxiliary outputs of two of them are left out."""
    from torchvision.models import get_model

    own = _own(settings)
    arguments: dict[str, Any] = {"weights": None, "num_classes": shape.num_classes}
    if own.network in ("googlenet", "inception_v3"):
        arguments |= {"aux_logits": False, "init_weights": True}
    if own.network.startswith("vit_"):
        arguments["image_size"] = own.image_size
    if own.network.startswith("maxvit"):
        arguments["input_size"] = (own.image_size, own.image_size)
    found: nn.Module = get_model(own.network, **arguments)
    return found


def tune(network: nn.Module, settings: Settings, batch_size: int) -> None:
    """Select nothing: the kernels are PyTorch's."""


def loss(outputs: Tensor, targets: Tensor, settings: Settings) -> Tensor:
    """Return the label-smoothed cross-entropy."""
    return nn.functional.cross_entropy(outputs, targets, label_smoothing=_own(settings).label_smoothing)


def measures(outputs: Tensor, targets: Tensor) -> Mapping[str, Tensor]:
    """Return correctness and cross-entropy (without label smoothing) of each picture, shape (batch,)."""
    return {
        "val_accuracy": outputs.argmax(1) == targets,
        "val_loss": nn.functional.cross_entropy(outputs, targets, reduction="none"),
    }


def training_batches(settings: Settings, data: Data, plan: Plan, device: torch.device) -> Batches:
    """Create the loader that the settings name."""
    own = _own(settings)
    if plan.share.number is None:
        return EmptyBatches(plan, sample_shape(settings, data).empty(0, device))
    if own.loader == "memory":
        return _MemoryBatches(data, own, plan, device)
    margin = resized(own.image_size) - own.image_size
    return WorkerBatches(
        _EachPicture(data, "train", own.image_size),
        partial(loaders.choices, margin=margin),
        plan,
        device,
        num_workers=own.num_workers,
        pin_memory=own.pin_memory and device.type == "cuda",
        bytes_per_sample=sample_shape(settings, data).bytes_per_sample,
        explain=str,  # all pictures have one shape
    )


def evaluation_batches(
    settings: Settings, data: Data, part: EvaluationPart, device: torch.device, rank: int, world_size: int
) -> Iterator[Batch]:
    """Yield this rank's batches of validation or test pictures, decoded as they are for training."""
    own = _own(settings)
    kept: cifar10.Part = "test" if part == "test" else "train"
    labels = _labels(data, kept)
    indices = np.arange(len(labels)) if part == "test" else cifar10.split(labels, data)[1]
    mine = indices[rank::world_size]
    size, margin = own.image_size, resized(own.image_size) - own.image_size
    batch_size = evaluation_batch_size(settings, -(-settings.batch_size // world_size))
    middle = [(index, margin // 2, margin // 2, False) for index in mine.tolist()]
    batches = [middle[start : start + batch_size] for start in range(0, len(middle), batch_size)]
    in_memory = own.loader == "memory" and part == "validation"  # among the training pictures, which are decoded
    pictures = _EachPicture(data, kept, size, _decoded_once(data, size)["images"] if in_memory else None)
    for batch in batches:
        samples = pictures.__getitems__(batch)
        if isinstance(samples, LoadFailure):
            raise DataError(samples.reason)
        images, classes = default_collate(samples)
        yield images.to(device), classes.to(device)


def evaluation_batch_size(settings: Settings, batch: int) -> int:
    """Return the process's share of a training batch."""
    return batch


def plain(settings: Settings, device_type: str) -> Settings:
    """Return the settings: none changes the network without changing a tensor."""
    return settings


def loaded_bytes(settings: Settings, shape: SampleShape, batch: int, device_type: str) -> int:
    """Return the bytes of a batch and of the pictures that it is made of; on CUDA those that are copied there."""
    if device_type == "cpu":
        return LOADED_COPIES * shape.bytes_per_sample * batch
    size = _own(settings).image_size
    return (3 * size**2 if _own(settings).loader == "memory" else shape.bytes_per_sample) * batch


def kept_bytes(settings: Settings, data_samples: int, device_type: str) -> int:
    """Return the bytes of the decoded pictures that stay in host memory."""
    own = _own(settings)
    return 3 * resized(own.image_size) ** 2 * data_samples * (own.loader == "memory" and device_type == "cpu")


def resized(image_size: int) -> int:
    """Return the shorter side of a picture from which a square of `image_size` is cut."""
    return image_size * 8 // 7


def decoded(path: Path, image_size: int) -> Bytes:
    """Return a picture's middle, shape (side, side, 3), with side as in `resized`.

    Raises:
        DataError: see `cifar10.rgb`.
    """
    from PIL import Image, ImageOps

    side = resized(image_size)
    return np.asarray(ImageOps.fit(cifar10.rgb(path, enough=side), (side, side), Image.Resampling.BILINEAR))


def _own(settings: Settings) -> ImageFolderSettings:
    return cast(ImageFolderSettings, settings)


@lru_cache(maxsize=4)
def _files(root: str, part: cifar10.Part) -> tuple[list[cifar10.PictureFile], int]:
    return cifar10.picture_files(Path(root), part)


def _labels(data: Data, part: cifar10.Part) -> NDArray[np.int64]:
    return np.array([file.label for file in _files(data.root or "", part)[0]], dtype=np.int64)


class _EachPicture(Dataset[tuple[Tensor, int]]):
    """Pictures cut out, flipped and normalised one by one, of files or of `decoded_images` of them."""

    def __init__(self, data: Data, part: cifar10.Part, image_size: int, decoded_images: Bytes | None = None) -> None:
        self._files, self._size, self._images = _files(data.root or "", part)[0], image_size, decoded_images

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
        whole = decoded(self._files[index].path, self._size) if self._images is None else self._images[index]
        return np.ascontiguousarray(_cut(whole, top, left, flipped, self._size))


class _MemoryBatches(Batches):
    """Batches gathered from pictures that were decoded once, and augmented at once."""

    def __init__(self, data: Data, own: ImageFolderSettings, plan: Plan, device: torch.device) -> None:
        arrays = _decoded_once(data, own.image_size)
        self._images, self._labels = arrays["images"], arrays["labels"]
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
            images[place] = _cut(self._images[index], top, left, flipped, self._size)
        batch = torch.from_numpy(images).permute(0, 3, 1, 2), torch.from_numpy(self._labels[draws.indices])
        return (batch[0].pin_memory(), batch[1].pin_memory()) if self._pin_memory else batch


def _cut(pixels: Bytes, top: int, left: int, flipped: bool, size: int) -> Bytes:
    """Return a square of a decoded picture as a view, perhaps mirrored."""
    square = pixels[top : top + size, left : left + size]
    return square[:, ::-1] if flipped else square


def _decoded_once(data: Data, image_size: int) -> Arrays:
    """Return all training pictures as bytes, from the disk cache if they are there."""
    files = _files(data.root or "", "train")[0]
    source = ["image_folder", cifar10.VERSION, image_size, [(str(f.path), f.label, f.size, f.mtime_ns) for f in files]]

    def make() -> Arrays:
        images = np.empty((len(files), resized(image_size), resized(image_size), 3), dtype=np.uint8)
        with ThreadPoolExecutor(len(allowed_cores())) as threads:
            for place, pixels in enumerate(threads.map(lambda f: decoded(f.path, image_size), files)):
                images[place] = pixels
        return {"images": images, "labels": np.array([f.label for f in files], dtype=np.int64)}

    return cached_arrays(source, make, default_folder())
