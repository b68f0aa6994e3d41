"""Training batches by three loaders that give the same pictures at different speeds, and evaluation batches.

What a batch holds, and how each picture is cropped and flipped, is drawn from (seed, epoch) alone: neither the loader
nor the number of processes changes what is learned.

    workers  a DataLoader: each picture is opened, cropped, flipped and normalised by itself, with torchvision and PIL
    memory   one uint8 array in host memory: a batch is gathered and augmented at once
    device   the same array on the CUDA device, augmented there
"""

from __future__ import annotations

import logging
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
from trainables.pictures import loader_processes, shared_memory
from trainables.pictures.cifar10 import Indices, Pictures, open_picture
from trainables.pictures.transfer import Batch, copied
from trainables.stages import Timeline

PADDING = 4
# Of CIFAR-10's training pictures, per channel, on a scale of 0 to 1; near enough for other photographs.
MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2470, 0.2435, 0.2616)
EVALUATION_BATCH = 500
PREFETCHED_BATCHES = 2  # that each loader process keeps ready
BYTES_PER_PICTURE = 4 * 3 * PICTURE_SIZE**2  # as floats
LOST = "DataLoader worker (pid"  # how PyTorch begins to say that one is gone
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Share:
    """Part `number` (0, 1, ...) of each batch, cut into `of` that differ by one picture at most; None: nothing."""

    number: int | None = 0
    of: int = 1

    def within(self, batch_size: int) -> tuple[int, int]:
        """Where it begins and ends."""
        if self.number is None:
            return 0, 0
        return batch_size * self.number // self.of, batch_size * (self.number + 1) // self.of


@dataclass(frozen=True)
class Plan:
    """Which pictures are in which batch of which epoch, and which share of each batch is read here."""

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
        """Per epoch; what is left over at the end is dropped."""
        return len(self.indices) // self.batch_size

    def epoch(self, epoch: int) -> Iterator[Draws]:
        """The share's draws, batch by batch."""
        whole = self.draws(epoch)
        for mine in self.slices():
            yield Draws(whole.indices[mine], whole.corners[mine], whole.flips[mine])

    def draws(self, epoch: int) -> Draws:
        """Of the whole epoch and all shares."""
        rng = np.random.default_rng([self.seed, epoch])
        order = rng.permutation(self.indices)[: self.num_batches * self.batch_size]
        corners = rng.integers(0, 2 * PADDING + 1, size=(len(order), 2))
        return Draws(order, corners, rng.random(len(order)) < 0.5)

    def slices(self) -> Iterator[slice]:
        """Where in an epoch's draws the share of each batch is."""
        first, last = self.share.within(self.batch_size)
        for start in range(0, self.num_batches * self.batch_size, self.batch_size):
            yield slice(start + first, start + last)


@dataclass(frozen=True)
class Draws:
    """The random choices for some pictures."""

    indices: Indices
    corners: NDArray[np.int64]  # (pictures, 2): top and left of the crop in the padded picture
    flips: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.indices)


class Batches(Protocol):
    """Training batches, epoch by epoch."""

    def epoch(self, epoch: int, timeline: Timeline) -> Iterator[Batch]:
        """This share of all batches of that epoch: normalised pictures (batch, 3, 32, 32), int64 classes (batch,)."""
        ...

    def close(self) -> None:
        """End the processes, if there are any."""
        ...


def training_batches(
    loader: str, pictures: Pictures, plan: Plan, device: torch.device, *, num_workers: int, pin_memory: bool
) -> Batches:
    """The loader of that name.

    Raises:
        InfeasibleError: it needs a CUDA device, and this is none.
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
    """All pictures once, as they are, in order; every `world_size`-th of them is this rank's."""
    mine, normalized = indices[rank::world_size], normalization(device)
    for start in range(0, len(mine), EVALUATION_BATCH):
        some = mine[start : start + EVALUATION_BATCH]
        images, labels = torch.from_numpy(pictures.images[some]), torch.from_numpy(pictures.labels[some])
        yield normalized(images.to(device).permute(0, 3, 1, 2)), labels.to(device)


class _NoPictures:
    """What a process gets that reads none: batches of nothing, so that it takes part in each step."""

    def __init__(self, plan: Plan, device: torch.device) -> None:
        self._plan, self._device = plan, device

    def epoch(self, epoch: int, timeline: Timeline) -> Iterator[Batch]:
        images = torch.zeros(0, 3, PICTURE_SIZE, PICTURE_SIZE, device=self._device)
        labels = torch.zeros(0, dtype=torch.int64, device=self._device)
        for _ in range(self._plan.num_batches):
            yield images, labels

    def close(self) -> None:
        return None


# --- a batch at once --------------------------------------------------------------------------------------------------


class _MemoryBatches:
    """Gathered and augmented on the host."""

    def __init__(self, pictures: Pictures, plan: Plan, device: torch.device, *, pin_memory: bool) -> None:
        self._pictures, self._plan, self._device = pictures, plan, device
        self._pin_memory, self._normalized = pin_memory, normalization(device)

    def epoch(self, epoch: int, timeline: Timeline) -> Iterator[Batch]:
        # bytes travel, not floats: a quarter of the traffic
        for images, labels in copied(map(self._batch, self._plan.epoch(epoch)), self._device, timeline):
            yield self._normalized(images), labels

    def close(self) -> None:
        return None

    def _batch(self, draws: Draws) -> Batch:
        corners, flips = torch.from_numpy(draws.corners), torch.from_numpy(draws.flips)
        images = augmented(torch.from_numpy(self._pictures.images[draws.indices]), corners, flips)
        labels = torch.from_numpy(self._pictures.labels[draws.indices])
        return (images.pin_memory(), labels.pin_memory()) if self._pin_memory else (images, labels)


class _DeviceBatches:
    """Gathered and augmented on the device, where all the pictures lie (154 MB for 50,000)."""

    def __init__(self, pictures: Pictures, plan: Plan, device: torch.device) -> None:
        if device.type != "cuda":
            raise InfeasibleError("loader device needs a CUDA device")
        self._plan, self._device, self._normalized = plan, device, normalization(device)
        self._images = torch.from_numpy(np.array(pictures.images)).to(device)
        self._labels = torch.from_numpy(np.array(pictures.labels)).to(device)

    def epoch(self, epoch: int, timeline: Timeline) -> Iterator[Batch]:
        draws = self._plan.draws(epoch)
        # all at once, for the same reason as in `normalization`
        indices, corners, flips = (
            torch.from_numpy(x).to(self._device) for x in (draws.indices, draws.corners, draws.flips)
        )
        for mine in self._plan.slices():
            images = augmented(self._images[indices[mine]], corners[mine], flips[mine])
            yield self._normalized(images), self._labels[indices[mine]]

    def close(self) -> None:
        return None


def augmented(images: Tensor, corners: Tensor, flips: Tensor) -> Tensor:
    """Padded by 4 black pixels, cropped and flipped: uint8 (batch, 32, 32, 3) to (batch, 3, 32, 32), on its device.

    `corners` (batch, 2) and `flips` (batch,) as in `Draws`, on the same device.
    """
    size = images.shape[1]
    padded = torch.nn.functional.pad(images, (0, 0, PADDING, PADDING, PADDING, PADDING))
    windows = padded.unfold(1, size, 1).unfold(2, size, 1)  # a view: (batch, 9, 9, 3, 32, 32)
    crops = windows[torch.arange(len(images), device=images.device), corners[:, 0], corners[:, 1]]
    return torch.where(flips[:, None, None, None], crops.flip(3), crops)


def normalization(device: torch.device) -> Callable[[Tensor], Tensor]:
    """From bytes (batch, 3, height, width) to floats with the mean 0 and the deviation 1 of CIFAR-10."""
    # made once: a copy from the host waits for the steps before it
    mean, std = (torch.tensor(x, device=device).view(3, 1, 1) for x in (MEAN, STD))

    def normalized(images: Tensor) -> Tensor:
        return images.float().div_(255).sub_(mean).div_(std)  # as torchvision does it, to the last bit

    return normalized


# --- a picture at a time ----------------------------------------------------------------------------------------------


class _WorkerBatches:
    """By loader processes that live until `close`; with `num_workers` 0 in this process."""

    def __init__(
        self, pictures: Pictures, plan: Plan, device: torch.device, *, num_workers: int, pin_memory: bool
    ) -> None:
        self._device, self._order = device, _Order(plan)
        of_each = plan.batch_size // plan.share.of + 1
        in_flight = (PREFETCHED_BATCHES + 1) * num_workers * of_each * BYTES_PER_PICTURE
        self._through_pipes = num_workers > 0 and not shared_memory.fits(in_flight)
        if self._through_pipes:
            log.warning("/dev/shm has no %d bytes: batches come through pipes, which is slower", in_flight)
        self._loader: DataLoader[Any] = DataLoader(
            _EachPicture(pictures),
            batch_sampler=self._order,
            num_workers=num_workers,
            persistent_workers=num_workers > 0,
            prefetch_factor=PREFETCHED_BATCHES if num_workers else None,
            pin_memory=pin_memory,
            generator=torch.Generator(),  # or it draws its seeds from dropout's stream
            collate_fn=_arrays if self._through_pipes else None,
            worker_init_fn=loader_processes.end_with_parent,
        )
        self._iterator: Any = None

    def epoch(self, epoch: int, timeline: Timeline) -> Iterator[Batch]:
        self._order.epoch = epoch
        try:
            self._iterator = iter(self._loader)
            loader_processes.wait_for_no_lock(self._iterator)
            batches = map(_tensors, self._iterator) if self._through_pipes else self._iterator
            yield from copied(batches, self._device, timeline)
        except RuntimeError as error:
            if LOST in str(error):
                raise HelperLostError(str(error).partition("\n")[0]) from error
            raise
        except (ConnectionError, EOFError) as error:  # a batch is there, but not who has its memory to give
            gone = ", ".join(map(str, loader_processes.gone(self._iterator)))
            raise HelperLostError(f"DataLoader worker (pid(s) {gone}) exited unexpectedly") from error

    def close(self) -> None:
        # The DataLoader ends its processes when it is collected; a traceback that holds it would keep them alive.
        if hasattr(self._iterator, "_shutdown_workers"):
            loader_processes.end(self._iterator)
        self._iterator = None


def _arrays(samples: list[tuple[Tensor, int]]) -> tuple[NDArray[Any], NDArray[Any]]:
    """A batch as it is pickled whole, where tensors would go through shared memory."""
    images, labels = zip(*samples, strict=True)
    return np.stack([image.numpy() for image in images]), np.array(labels, dtype=np.int64)


def _tensors(batch: tuple[NDArray[Any], NDArray[Any]]) -> Batch:
    return torch.from_numpy(batch[0]), torch.from_numpy(batch[1])


Choice = tuple[int, int, int, bool]  # picture, top, left, flipped


class _Order(Sampler[list[Choice]]):
    """Hands the loader processes the choices for each picture, drawn here: what they give depends on nothing else."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.epoch = 1

    def __iter__(self) -> Iterator[list[Choice]]:
        for draws in self._plan.epoch(self.epoch):
            columns = (draws.indices, draws.corners[:, 0], draws.corners[:, 1], draws.flips)
            yield list(zip(*(column.tolist() for column in columns), strict=True))

    def __len__(self) -> int:
        return self._plan.num_batches


class _EachPicture(Dataset[tuple[Tensor, int]]):
    """One picture decoded, cropped, flipped and normalised, as the usual transforms do it."""

    def __init__(self, pictures: Pictures) -> None:
        self._pictures = pictures

    def __getitem__(self, choice: Choice) -> tuple[Tensor, int]:
        from torchvision.transforms import functional as F

        index, top, left, flipped = choice
        picture = F.crop(F.pad(self._open(index), [PADDING]), top, left, 32, 32)
        tensor = F.to_tensor(F.hflip(picture) if flipped else picture)
        return F.normalize(tensor, list(MEAN), list(STD), inplace=True), int(self._pictures.labels[index])

    def _open(self, index: int) -> Any:
        from PIL import Image

        files = self._pictures.files
        return open_picture(files[index]) if files else Image.fromarray(self._pictures.images[index])
