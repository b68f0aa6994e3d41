"""Workload: VGG19 on 32x32 pictures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from trainables.contract import Data
from trainables.machine.processor import precision_of
from trainables.network import autotune
from trainables.network.autotune import choose_kernels
from trainables.network.vgg import PICTURE_SIZE, vgg
from trainables.plan import Batch, Batches, Indices, Plan
from trainables.sample_shape import SampleShape
from trainables.samples import loaders, picture_source
from trainables.samples.split import split
from trainables.settings import Settings
from trainables.step import DTYPES, FORMATS
from trainables.vgg19_settings import Vgg19Settings, loader_of
from trainables.workload import EvaluationPart, Views
from trainables.workloads.classification import loss as loss
from trainables.workloads.classification import measures as measures
from trainables.workloads.classification import units_per_sample as units_per_sample

UNIT = "images"
MEASURES = ("val_loss", "val_accuracy")
VERSION = autotune.VERSION
PICTURE_BYTES = 3 * PICTURE_SIZE**2
LOADED_BYTES = 16 * PICTURE_BYTES  # gathered, padded, cropped and flipped bytes, floats, a copy in its format


def views(images: Tensor) -> list[Tensor]:
    """Return images (batch, 3, 32, 32) as they are, moved by a pixel up left and down right, and all three mirrored."""
    padded = nn.functional.pad(images, (1, 1, 1, 1), mode="reflect")
    places = [images, padded[:, :, :-2, :-2], padded[:, :, 2:, 2:]]
    return [*places, *(each.flip(3) for each in places)]


# the six views and their weights: Jordan 2024, arXiv:2404.00498
VIEWS = Views(views, {"flip": (0.5, 0, 0, 0.5, 0, 0), "six_views": (0.25, 0.125, 0.125, 0.25, 0.125, 0.125)})


def training_indices(data: Data) -> Indices:
    """Return the indices of the training pictures, without those for validation."""
    return split(picture_source.training_pictures(data).labels, data)[0]


def training_count(data: Data) -> int:
    """Return the number of training pictures without reading any."""
    return picture_source.training_count(data)[0]


def sample_shape(settings: Settings, data: Data) -> SampleShape:
    """Return the shape of a normalised picture and its class."""
    return shape_for(picture_source.num_classes(data))


def shape_for(num_classes: int) -> SampleShape:
    """Return the shape of pictures of so many classes."""
    picture = torch.empty(3, PICTURE_SIZE, PICTURE_SIZE, device="meta")
    return SampleShape(picture, torch.empty((), dtype=torch.int64, device="meta"), num_classes)


def example(settings: Settings, data: Data, size: int) -> Batch:
    """Return a batch of pictures of random numbers, all of class 0."""
    return sample_shape(settings, data).example(size, "cpu")


def network(settings: Settings, shape: SampleShape) -> nn.Module:
    """Build VGG19, or the shallower one of the settings."""
    own = _own(settings)
    return vgg(shape.num_classes, depth=own.depth, width=own.width, head=own.head, initialization=own.initialization)


def tune(network: nn.Module, settings: Settings, batch_size: int) -> None:
    """Select the convolution kernels."""
    device = next(network.parameters()).device
    dtype = DTYPES.get(precision_of(settings.precision, device.type), torch.float32)
    memory_format, kernel = FORMATS[settings.memory_format], _own(settings).conv_kernel
    choose_kernels(network, kernel, batch_size=batch_size, dtype=dtype, memory_format=memory_format)


def training_batches(settings: Settings, data: Data, plan: Plan, device: torch.device) -> Batches:
    """Create the loader that the settings name."""
    own = _own(settings)
    return loaders.training_batches(
        own.loader,
        picture_source.training_pictures(data),
        plan,
        device,
        num_workers=own.num_workers,
        pin_memory=own.pin_memory,
        padding=own.crop_padding,
    )


def evaluation_batches(
    settings: Settings, data: Data, part: EvaluationPart, device: torch.device, rank: int, world_size: int
) -> Iterator[Batch]:
    """Return this rank's batches of validation or test pictures."""
    if part == "test":
        pictures = picture_source.test_pictures(data)
        indices = np.arange(len(pictures.labels))
    else:
        pictures = picture_source.training_pictures(data)
        indices = split(pictures.labels, data)[1]
    return loaders.evaluation_batches(pictures, indices, device, rank, world_size, _own(settings).loader)


def evaluation_batch_size(settings: Settings, batch: int) -> int:
    """Return the same number for all configurations."""
    return loaders.EVALUATION_BATCH


def plain(settings: Settings, device_type: str) -> Vgg19Settings:
    """Return settings with the same tensors: the usual kernel, the loader's and the loss's defaults."""
    own = _own(settings)
    kernel = own.conv_kernel
    if kernel == "auto":
        kernel = "gemm" if device_type == "cpu" else "library"  # the usual choice; gemm needs a fifth more
    # label smoothing would count a few more bytes
    return replace(own, conv_kernel=kernel, loader="memory", label_smoothing=0.0)


def loaded_bytes(settings: Settings, shape: SampleShape, batch: int, device_type: str) -> int:
    """Return the bytes of a batch with its intermediate results; on CUDA those that are copied there."""
    if device_type == "cpu":
        return LOADED_BYTES * batch
    loader = loader_of(_own(settings).loader, device_type)
    return {"workers": shape.bytes_per_sample, "memory": PICTURE_BYTES}.get(loader, 0) * batch


def kept_count(data: Data, device_type: str) -> int | None:
    """Return the number of all pictures, which the copy on a GPU has; None: those trained on."""
    return picture_source.stored_count(data) if device_type == "cuda" else None


def kept_bytes(settings: Settings, kept_samples: int, device_type: str) -> int:
    """Return the bytes of the pictures on the device, or mapped into host memory, which are soon read completely."""
    loader = loader_of(_own(settings).loader, device_type)
    kept = loader == "device" if device_type == "cuda" else loader != "workers"
    return PICTURE_BYTES * kept_samples * kept


def _own(settings: Settings) -> Vgg19Settings:
    return cast(Vgg19Settings, settings)
