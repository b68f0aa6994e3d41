"""Training batches from three loaders that give the same images at different speeds, and evaluation batches.

The images of a batch, their crops and their flips are drawn from (seed, epoch) alone: neither the loader nor the number
of processes changes the training.

    workers  a DataLoader: each image is opened, cropped, flipped and normalised by itself, with torchvision and PIL
    memory   one uint8 array in host memory: a batch is gathered and augmented at once
    device   the same array on the CUDA device, augmented there
"""

import logging
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from trainables.contract import HelperLostError, InfeasibleError
from trainables.network.vgg import PICTURE_SIZE
from trainables.samples import loader_processes
from trainables.samples.cifar10 import Indices, Pictures, open_picture
from trainables.samples.transfer import Batch, copied
from trainables.stages import Timeline

PADDING = 4
# Statistics of CIFAR-10's training images per channel, from 0 to 1; close enough for other photographs.
MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2470, 0.2435, 0.2616)
EVALUATION_BATCH = 500
PREFETCHED_BATCHES = 2  # that each loader process keeps ready
BYTES_PER_IMAGE = 4 * 3 * PICTURE_SIZE**2  # as floats
LOST = "DataLoader worker (pid"  # beginning of PyTorch's message that one has ended
log = logging.getLogger(__name__)


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


@dataclass(frozen=True)
class Draws:
    """Random choices for some images."""

    indices: Indices
    corners: NDArray[np.int64]  # (images, 2): top and left of the crop in the padded image
    flips: NDArray[np.bool_]


@dataclass(frozen=True)
class Plan:
    """Assignment of images to the batches of each epoch, and the share of each batch that is read here."""

    indices: Indices
    batch_size: int  # global
    seed: int
    share: Share = Share()

    def __post_init__(self) -> None:
        if self.batch_size < self.share.of:
            raise InfeasibleError(f"batch_size {self.batch_size} is less than a picture for each of {self.share.of}")
        if self.batch_size > len(self.indices):
            raise InfeasibleError(f"batch_size {self.batch_size}: there are {len(self.indices):,} training pictures")

    @property
    def num_batches(self) -> int:
        """Number of batches per epoch; an incomplete last one is dropped."""
        return len(self.indices) // self.batch_size

    def epoch(self, epoch: int) -> Iterator[Draws]:
        """Yield the share's draws, batch by batch."""
        whole = self.draws(epoch)
        for mine in self.slices():
            yield Draws(whole.indices[mine], whole.corners[mine], whole.flips[mine])

    def draws(self, epoch: int) -> Draws:
        """Draw for the whole epoch and all shares."""
        rng = np.random.default_rng([self.seed, epoch])
        order = rng.permutation(self.indices)[: self.num_batches * self.batch_size]
        corners = rng.integers(0, 2 * PADDING + 1, size=(len(order), 2))
        return Draws(order, corners, rng.random(len(order)) < 0.5)

    def slices(self) -> Iterator[slice]:
        """Yield the position of each batch's share in an epoch's draws."""
        first, last = self.share.within(self.batch_size)
        for start in range(0, self.num_batches * self.batch_size, self.batch_size):
            yield slice(start + first, start + last)


class Batches(Protocol):
    """Training batches, epoch by epoch."""

    @abstractmethod
    def epoch(self, epoch: int, timeline: Timeline) -> Iterator[Batch]:
        """Yield this share of the epoch's batches: normalised images (batch, 3, 32, 32), int64 classes (batch,)."""

    def close(self) -> None:
        """End the loader processes, if there are any."""
        return


def training_batches(
    loader: str, pictures: Pictures, plan: Plan, device: torch.device, *, num_workers: int, pin_memory: bool
) -> Batches:
    """Create the loader with this name.

    Raises:
        InfeasibleError: it needs a CUDA device, and `device` is none.
    """
    if plan.share.number is None:
        return _NoPictures(plan, device)
    match loader:
        case "memory":
            return _MemoryBatches(pictures, plan, device, pin_memory=pin_memory)
        case "device":
            return _DeviceBatches(pictures, plan, device)
    return _WorkerBatches(pictures, plan, device, num_workers=num_workers, pin_memory=pin_memory)


def evaluation_batches(
    pictures: Pictures, indices: Indices, device: torch.device, rank: int = 0, world_size: int = 1
) -> Iterator[Batch]:
    """Yield all images once, in order and not augmented; each rank gets every `world_size`-th of them."""
    mine, normalized = indices[rank::world_size], normalization(device)
    for start in range(0, len(mine), EVALUATION_BATCH):
        some = mine[start : start + EVALUATION_BATCH]
        images, labels = torch.from_numpy(pictures.images[some]), torch.from_numpy(pictures.labels[some])
        yield normalized(images.to(device).permute(0, 3, 1, 2)), labels.to(device)


class _NoPictures(Batches):
    """Empty batches, with which a process that reads no images takes part in each step."""

    def __init__(self, plan: Plan, device: torch.device) -> None:
        self._plan, self._device = plan, device

    def epoch(self, epoch: int, timeline: Timeline) -> Iterator[Batch]:
        images = torch.zeros(0, 3, PICTURE_SIZE, PICTURE_SIZE, device=self._device)
        labels = torch.zeros(0, dtype=torch.int64, device=self._device)
        for _ in range(self._plan.num_batches):
            yield images, labels


class _MemoryBatches(Batches):
    """Batches gathered and augmented on the host."""

    def __init__(self, pictures: Pictures, plan: Plan, device: torch.device, *, pin_memory: bool) -> None:
        self._pictures, self._plan, self._device = pictures, plan, device
        self._pin_memory, self._normalized = pin_memory, normalization(device)

    def epoch(self, epoch: int, timeline: Timeline) -> Iterator[Batch]:
        # copied as bytes, not floats: a quarter of the traffic
        for images, labels in copied(map(self._batch, self._plan.epoch(epoch)), self._device, timeline):
            yield self._normalized(images), labels

    def _batch(self, draws: Draws) -> Batch:
        corners, flips = torch.from_numpy(draws.corners), torch.from_numpy(draws.flips)
        images = augmented(torch.from_numpy(self._pictures.images[draws.indices]), corners, flips)
        labels = torch.from_numpy(self._pictures.labels[draws.indices])
        return (images.pin_memory(), labels.pin_memory()) if self._pin_memory else (images, labels)


class _DeviceBatches(Batches):
    """Batches gathered and augmented on the device, which holds all images (154 MB for 50,000)."""

    def __init__(self, pictures: Pictures, plan: Plan, device: torch.device) -> None:
        if device.type != "cuda":
            raise InfeasibleError("loader device needs a CUDA device")
        self._plan, self._device, self._normalized = plan, device, normalization(device)
        self._images = torch.from_numpy(np.array(pictures.images)).to(device)
        self._labels = torch.from_numpy(np.array(pictures.labels)).to(device)

    def epoch(self, epoch: int, timeline: Timeline) -> Iterator[Batch]:
        draws = self._plan.draws(epoch)
        # copied once per epoch: a copy from the host waits for the steps before it
        arrays = (draws.indices, draws.corners, draws.flips)
        indices, corners, flips = (torch.from_numpy(x).to(self._device) for x in arrays)
        for mine in self._plan.slices():
            images = augmented(self._images[indices[mine]], corners[mine], flips[mine])
            yield self._normalized(images), self._labels[indices[mine]]


def augmented(images: Tensor, corners: Tensor, flips: Tensor) -> Tensor:
    """Pad by 4 black pixels, crop and flip: uint8 (batch, 32, 32, 3) to (batch, 3, 32, 32), on its device.

    `corners` (batch, 2) and `flips` (batch,) as in `Draws`, on the same device.
    """
    size = images.shape[1]
    padded = torch.nn.functional.pad(images, (0, 0, PADDING, PADDING, PADDING, PADDING))
    windows = padded.unfold(1, size, 1).unfold(2, size, 1)  # a view: (batch, 9, 9, 3, 32, 32)
    crops = windows[torch.arange(len(images), device=images.device), corners[:, 0], corners[:, 1]]
    return torch.where(flips[:, None, None, None], crops.flip(3), crops)


def normalization(device: torch.device) -> Callable[[Tensor], Tensor]:
    """Return a function from bytes (batch, 3, height, width) to floats with mean 0 and deviation 1 on CIFAR-10."""
    # copied once: a copy from the host waits for the steps before it
    mean, std = (torch.tensor(x, device=device).view(3, 1, 1) for x in (MEAN, STD))

    def normalized(images: Tensor) -> Tensor:
        return images.float().div_(255).sub_(mean).div_(std)  # bit for bit the same as torchvision's

    return normalized


class _WorkerBatches(Batches):
    """Batches from loader processes that live until `close`; with `num_workers` 0 from this process."""

    def __init__(
        self, pictures: Pictures, plan: Plan, device: torch.device, *, num_workers: int, pin_memory: bool
    ) -> None:
        self._device, self._order = device, _Order(plan)
        of_each = plan.batch_size // plan.share.of + 1
        in_flight = (PREFETCHED_BATCHES + 1) * num_workers * of_each * BYTES_PER_IMAGE
        self._through_pipes = num_workers > 0 and not loader_processes.fits_in_shared_memory(in_flight)
        if self._through_pipes:
            log.warning("/dev/shm has no %d bytes: batches come through pipes, which is slower", in_flight)
        self._loader: DataLoader[Any] = DataLoader(
            _EachPicture(pictures),
            batch_sampler=self._order,
            num_workers=num_workers,
            persistent_workers=num_workers > 0,
            prefetch_factor=PREFETCHED_BATCHES if num_workers else None,
            pin_memory=pin_memory,
            generator=torch.Generator(),  # else it would draw its seeds from dropout's stream
            collate_fn=_arrays if self._through_pipes else None,
            worker_init_fn=loader_processes.end_with_parent,
        )
        self._iterator: Any = None

    def epoch(self, epoch: int, timeline: Timeline) -> Iterator[Batch]:
        self._order.epoch = epoch
        try:
            self._iterator = iter(self._loader)
            loader_processes.limit_lock_wait(self._iterator)
            # arrays through pipes, or tensors through shared memory
            batches = ((torch.as_tensor(images), torch.as_tensor(labels)) for images, labels in self._iterator)
            yield from copied(batches, self._device, timeline)
        except RuntimeError as error:
            if LOST in str(error):
                raise HelperLostError(str(error).partition("\n")[0]) from error
            raise
        except (ConnectionError, EOFError) as error:  # the process that holds the batch's memory has ended
            pids = ", ".join(map(str, loader_processes.ended(self._iterator)))
            raise HelperLostError(f"DataLoader worker (pid(s) {pids}) exited unexpectedly") from error

    def close(self) -> None:
        # The DataLoader ends its processes only when it is collected, which a traceback can delay.
        if hasattr(self._iterator, "_shutdown_workers"):
            loader_processes.shut_down(self._iterator)
        self._iterator = None


def _arrays(samples: list[tuple[Tensor, int]]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Collate a batch as arrays, which are pickled through a pipe; tensors would go through shared memory."""
    images, labels = zip(*samples, strict=True)
    return np.stack([image.numpy() for image in images]), np.array(labels, dtype=np.int64)


Choice = tuple[int, int, int, bool]  # image, top, left, flipped


class _Order(Sampler[list[Choice]]):
    """Sampler that passes the random choices for each image to the loader processes, which draw nothing themselves."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self.epoch = plan, 1

    def __iter__(self) -> Iterator[list[Choice]]:
        for draws in self._plan.epoch(self.epoch):
            columns = (draws.indices, *draws.corners.T, draws.flips)
            yield list(zip(*(column.tolist() for column in columns), strict=True))

    def __len__(self) -> int:
        return self._plan.num_batches


class _EachPicture(Dataset[tuple[Tensor, int]]):
    """Images decoded, cropped, flipped and normalised one by one, with torchvision's transforms."""

    def __init__(self, pictures: Pictures) -> None:
        self._pictures = pictures

    def __getitem__(self, choice: Choice) -> tuple[Tensor, int]:
        from PIL import Image
        from torchvision.transforms import functional as F

        index, top, left, flipped = choice
        files = self._pictures.files
        opened = open_picture(files[index]) if files else Image.fromarray(self._pictures.images[index])
        picture = F.crop(F.pad(opened, [PADDING]), top, left, 32, 32)
        tensor = F.to_tensor(F.hflip(picture) if flipped else picture)
        return F.normalize(tensor, list(MEAN), list(STD), inplace=True), int(self._pictures.labels[index])
