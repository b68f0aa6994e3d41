"""Training batches from three loaders that give the same images at different speeds, and evaluation batches.

The images of a batch, their crops and their flips are drawn from (seed, epoch) alone: neither the loader nor the number
of processes changes the training.

    workers  a DataLoader: each image is opened, cropped, flipped and normalised by itself, with torchvision and PIL
    memory   one uint8 array in host memory: a batch is gathered and augmented at once
    device   the same array on the CUDA device, augmented there
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from weakref import WeakValueDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from trainables.contract import InfeasibleError
from trainables.network.vgg import PICTURE_SIZE
from trainables.plan import Batches, EmptyBatches, Plan
from trainables.samples.picture_source import Pictures, open_picture
from trainables.samples.split import Indices
from trainables.samples.transfer import copied
from trainables.samples.worker_batches import WorkerBatches
from trainables.stages import Timeline
from trainables.vgg19_settings import Vgg19Settings, loader_of

# Statistics of CIFAR-10's training images per channel, from 0 to 1; close enough for other photographs.
MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2470, 0.2435, 0.2616)
EVALUATION_BATCH = 500
BYTES_PER_IMAGE = 4 * 3 * PICTURE_SIZE**2  # as floats
Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Draws:
    """Random choices for some images."""

    indices: Indices
    corners: NDArray[np.int64]  # (images, 2): top and left of the crop in the padded image
    flips: NDArray[np.bool_]


def drawn(plan: Plan, epoch: int, margin: int) -> Draws:
    """Draw for the whole epoch and all shares; `margin`: pixels by which a crop is smaller than what it is cut from."""
    order, rng = plan.order(epoch)
    corners = rng.integers(0, margin + 1, size=(len(order), 2))
    return Draws(order, corners, rng.random(len(order)) < 0.5)


def share_drawn(plan: Plan, epoch: int, margin: int) -> Iterator[Draws]:
    """Yield the share's draws, batch by batch."""
    whole = drawn(plan, epoch, margin)
    for mine in plan.slices():
        yield Draws(whole.indices[mine], whole.corners[mine], whole.flips[mine])


def training_batches(
    loader: str,
    pictures: Pictures,
    plan: Plan,
    device: torch.device,
    *,
    num_workers: int,
    pin_memory: bool,
    padding: int = Vgg19Settings.crop_padding,
) -> Batches:
    """Create the loader with this name; `padding`: black pixels on each side, before a crop of the picture's size.

    Raises:
        InfeasibleError: it needs a CUDA device, and `device` is none.
    """
    if plan.share.number is None:
        images = torch.zeros(0, 3, PICTURE_SIZE, PICTURE_SIZE, device=device)
        return EmptyBatches(plan, (images, torch.zeros(0, dtype=torch.int64, device=device)))
    match loader_of(loader, device.type):
        case "memory":
            return _MemoryBatches(pictures, plan, device, padding, pin_memory=pin_memory)
        case "device":
            return _DeviceBatches(pictures, plan, device, padding)
    return WorkerBatches(
        _EachPicture(pictures, padding),
        partial(choices, margin=2 * padding),
        plan,
        device,
        num_workers=num_workers,
        pin_memory=pin_memory,
        bytes_per_sample=BYTES_PER_IMAGE,
    )


def evaluation_batches(
    pictures: Pictures, indices: Indices, device: torch.device, rank: int = 0, world_size: int = 1, loader: str = ""
) -> Iterator[Batch]:
    """Yield all images once, in order and not augmented; each rank gets every `world_size`-th of them.

    With the loader `device` they are taken from the copy there.
    """
    mine, normalized = indices[rank::world_size], normalization(device)
    if loader_of(loader, device.type) == "device":
        copy = device_copy(pictures, device)
        on_device = torch.from_numpy(np.ascontiguousarray(mine)).to(device)
        for part in torch.split(on_device, EVALUATION_BATCH):
            yield normalized(copy.images[part].permute(0, 3, 1, 2)), copy.labels[part]
        return
    for start in range(0, len(mine), EVALUATION_BATCH):
        some = mine[start : start + EVALUATION_BATCH]
        images, labels = torch.from_numpy(pictures.images[some]), torch.from_numpy(pictures.labels[some])
        yield normalized(images.to(device).permute(0, 3, 1, 2)), labels.to(device)


class DeviceCopy:
    """All pictures and labels on a device (154 MB for 50,000)."""

    def __init__(self, pictures: Pictures, device: torch.device) -> None:
        self._pictures = pictures  # keeps its id, by which the copy is found
        self.images = torch.from_numpy(np.array(pictures.images)).to(device)
        self.labels = torch.from_numpy(np.array(pictures.labels)).to(device)


_copies: WeakValueDictionary[tuple[int, torch.device], DeviceCopy] = WeakValueDictionary()


def device_copy(pictures: Pictures, device: torch.device) -> DeviceCopy:
    """Return the copy on the device that somebody holds, such as the training batches, or a new one."""
    key = id(pictures), device
    if (copy := _copies.get(key)) is None:
        _copies[key] = copy = DeviceCopy(pictures, device)
    return copy


class _MemoryBatches(Batches):
    """Batches gathered and augmented on the host."""

    def __init__(self, pictures: Pictures, plan: Plan, device: torch.device, padding: int, *, pin_memory: bool) -> None:
        self._pictures, self._plan, self._device, self._padding = pictures, plan, device, padding
        self._pin_memory, self._normalized = pin_memory, normalization(device)

    def epoch(self, epoch: int, timeline: Timeline) -> Iterator[Batch]:
        # copied as bytes, not floats: a quarter of the traffic
        draws = share_drawn(self._plan, epoch, 2 * self._padding)
        for images, labels in copied(map(self._batch, draws), self._device, timeline):
            yield self._normalized(images), labels

    def _batch(self, draws: Draws) -> Batch:
        corners, flips = torch.from_numpy(draws.corners), torch.from_numpy(draws.flips)
        images = augmented(torch.from_numpy(self._pictures.images[draws.indices]), corners, flips, self._padding)
        labels = torch.from_numpy(self._pictures.labels[draws.indices])
        return (images.pin_memory(), labels.pin_memory()) if self._pin_memory else (images, labels)


class _DeviceBatches(Batches):
    """Batches gathered and augmented on the device, which holds all images."""

    def __init__(self, pictures: Pictures, plan: Plan, device: torch.device, padding: int) -> None:
        if device.type != "cuda":
            raise InfeasibleError("loader device needs a CUDA device")
        self._plan, self._device, self._padding, self._normalized = plan, device, padding, normalization(device)
        self._copy = device_copy(pictures, device)

    def epoch(self, epoch: int, timeline: Timeline) -> Iterator[Batch]:
        draws = drawn(self._plan, epoch, 2 * self._padding)
        # copied once per epoch: a copy from the host waits for the steps before it
        arrays = (draws.indices, draws.corners, draws.flips)
        indices, corners, flips = (torch.from_numpy(x).to(self._device) for x in arrays)
        for mine in self._plan.slices():
            images = augmented(self._copy.images[indices[mine]], corners[mine], flips[mine], self._padding)
            yield self._normalized(images), self._copy.labels[indices[mine]]


def augmented(images: Tensor, corners: Tensor, flips: Tensor, padding: int) -> Tensor:
    """Pad by black pixels, crop and flip: uint8 (batch, 32, 32, 3) to (batch, 3, 32, 32), on its device.

    `corners` (batch, 2) and `flips` (batch,) as in `Draws`, on the same device.
    """
    size = images.shape[1]
    padded = torch.nn.functional.pad(images, (0, 0, padding, padding, padding, padding))
    windows = padded.unfold(1, size, 1).unfold(2, size, 1)  # a view: (batch, margin + 1, margin + 1, 3, 32, 32)
    crops = windows[torch.arange(len(images), device=images.device), corners[:, 0], corners[:, 1]]
    return torch.where(flips[:, None, None, None], crops.flip(3), crops)


Channels = tuple[float, float, float]


def normalization(device: torch.device, mean: Channels = MEAN, std: Channels = STD) -> Callable[[Tensor], Tensor]:
    """Return a function from bytes (batch, 3, height, width) to floats with mean 0 and deviation 1."""
    # copied once: a copy from the host waits for the steps before it
    means, deviations = (torch.tensor(x, device=device).view(3, 1, 1) for x in (mean, std))

    def normalized(images: Tensor) -> Tensor:
        return images.float().div_(255).sub_(means).div_(deviations)  # bit for bit the same as torchvision's

    return normalized


Choice = tuple[int, int, int, bool]  # image, top, left, flipped


def choices(plan: Plan, epoch: int, margin: int) -> Iterator[list[Choice]]:
    """Yield the share's pictures with their random choices, so that loader processes draw nothing themselves."""
    for draws in share_drawn(plan, epoch, margin):
        columns = (draws.indices, *draws.corners.T, draws.flips)
        yield list(zip(*(column.tolist() for column in columns), strict=True))


class _EachPicture(Dataset[tuple[Tensor, int]]):
    """Images decoded, cropped, flipped and normalised one by one, with torchvision's transforms."""

    def __init__(self, pictures: Pictures, padding: int) -> None:
        self._pictures, self._padding = pictures, padding

    def __getitem__(self, choice: Choice) -> tuple[Tensor, int]:
        from PIL import Image
        from torchvision.transforms import functional as F

        index, top, left, flipped = choice
        files = self._pictures.files
        opened = open_picture(files[index]) if files else Image.fromarray(self._pictures.images[index])
        picture = F.crop(F.pad(opened, [self._padding]), top, left, PICTURE_SIZE, PICTURE_SIZE)
        tensor = F.to_tensor(F.hflip(picture) if flipped else picture)
        return F.normalize(tensor, list(MEAN), list(STD), inplace=True), int(self._pictures.labels[index])
