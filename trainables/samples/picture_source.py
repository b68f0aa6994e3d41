"""Sources of images: the CIFAR-10 archive, a folder of image files, or generated ones; all become 32x32 arrays."""

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.contract import Data, DataError
from trainables.machine.array_cache import Arrays, cached_arrays, default_folder
from trainables.samples import generated, picture_folder
from trainables.samples.picture_folder import Part, PictureFile, picture_files, rgb
from trainables.samples.split import Labels, out_of_range

ROOT_VARIABLE = "TRAINING_SEARCH_DATA"
# Searched in this order, unless `data.root` or the environment variable names a place.
PLACES = ("data", "~/.cache/cifar10", "~/.cache/cifar10-images")
WHERE = "--set data.root=DIR says where it is, --root DIR where a command has no --set"
SIZE = 32
CONTENTS = {  # of a data folder
    "cifar10": "cifar-10-batches-py or cifar-10-python.tar.gz",
    "folder": picture_folder.CONTENTS,
}
Images = NDArray[np.uint8]


@dataclass(frozen=True)
class Pictures:
    """Images and their classes, numbered from 0."""

    images: Images  # (count, 32, 32, 3)
    labels: Labels  # (count,)
    num_classes: int = 10
    files: tuple[Path, ...] | None = None  # of each image, if it comes from a file of its own


def locate(data: Data) -> Data:
    """Resolve `auto` (in order: cifar10, folder, download if allowed, generated) and make `root` absolute.

    Raises:
        DataError: nothing usable was found; says what was searched and what to do.
    """
    if data.name == "generated":
        return replace(data, root=None)
    named = data.root or os.environ.get(ROOT_VARIABLE)
    places = [Path(os.path.expanduser(place)).absolute() for place in ([named] if named else PLACES)]
    for root in places if data.name in ("auto", "cifar10") else ():
        if (root / "cifar-10-batches-py").is_dir() or (root / "cifar-10-python.tar.gz").is_file():
            _archive(root, "train")  # fails now if it is damaged, not in each trial
            return replace(data, name="cifar10", root=str(root))
    for root in places if data.name in ("auto", "folder") else ():
        with suppress(DataError):
            picture_files(root, "train")
            return replace(data, name="folder", root=str(root))
    if data.name != "folder" and data.download:
        try:
            places[0].mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"data cifar10: {places[0]} cannot be written ({error.strerror})") from error
        _archive(places[0], "train", download=True)
        return replace(data, name="cifar10", root=str(places[0]))
    if data.name == "auto" and not named:
        return replace(data, name="generated", root=None)
    raise DataError(_not_found("folder" if data.name == "auto" else data.name, places))


def describe(data: Data) -> str:
    """Describe the data by name and counts, without paths; generated images are marked as such."""
    _, test, classes = _counts(data)
    train, _ = training_count(data)
    counts = f"{train:,} train, {data.val_images:,} validation, {test:,} test; {classes} classes"
    kinds = {"cifar10": "CIFAR-10", "folder": "folder of pictures", "generated": "generated (not photographs)"}
    of_folder = picture_folder.described(Path(data.root or "")) if data.name == "folder" else ""
    return f"{kinds[data.name]}: {counts}{of_folder}"


def training_count(data: Data) -> tuple[int, int]:
    """Return the number of images that an epoch trains on, and of classes, without reading any image.

    Raises:
        DataError: validation leaves no image to train on.
    """
    train, _, classes = _counts(data)
    if not 0 <= data.val_images < train:
        raise DataError(out_of_range(data.val_images, train))
    left = train - data.val_images
    return left if data.train_images is None else min(data.train_images, left), classes


@lru_cache(maxsize=8)
def stored_count(data: Data) -> int:
    """Return the number of images of `training_pictures`, without reading any; files are listed once in a process."""
    return _counts(data)[0]


@lru_cache(maxsize=8)
def num_classes(data: Data) -> int:
    """Return the number of classes; files are listed once in a process, as the pictures are read once.

    Raises:
        DataError: see `training_count`.
    """
    return training_count(data)[1]


def _not_found(name: str, places: Sequence[Path]) -> str:
    found = f"no {CONTENTS[name]} in {', '.join(map(str, places))}"
    if len(places) == 1 and not places[0].is_dir():
        found = f"no such folder: {places[0]}"
    return (
        f"data {name}: {found}; "
        f"{'--set data.download=true or ' * (name == 'cifar10')}{WHERE}, "
        "--set data.name=generated needs no files"
    )


def _counts(data: Data) -> tuple[int, int, int]:
    """Number of training images (validation included), of test images, and of classes."""
    if data.name == "folder":
        (train, classes), (test, _) = (picture_files(Path(data.root or ""), part) for part in ("train", "test"))
        return len(train), len(test), classes
    if data.name == "cifar10":
        return 50_000, 10_000, 10
    return *_generated_counts(data), len(generated.SHAPES)


def _generated_counts(data: Data) -> tuple[int, int]:
    """Numbers of generated images: CIFAR-10's, or what `train_images` needs; a fifth as many for testing."""
    count = generated.NUM_TRAIN
    if data.train_images is not None:
        count = min(count, data.train_images + data.val_images)
    return count, min(generated.NUM_TEST, count // 5)


def training_pictures(data: Data) -> Pictures:
    """Return all training images of located `data`, validation images included.

    Raises:
        DataError: they cannot be read.
    """
    return _pictures(data.name, data.root or "", _generated_counts(data)[0], "train", default_folder())


def test_pictures(data: Data) -> Pictures:
    """Return the test images. Nothing else reads them."""
    return _pictures(data.name, data.root or "", _generated_counts(data)[1], "test", default_folder())


@lru_cache(maxsize=2)  # lists the files once in a process that trains several configurations
def _pictures(name: str, root: str, generated_count: int, part: Part, cache_folder: Path) -> Pictures:
    if name == "generated":
        pair = partial(generated.generate, generated_count, seed=0 if part == "train" else 1)
        source: list[Any] = [name, part, generated.VERSION, generated_count]
        arrays = cached_arrays(source, lambda: dict(zip(("images", "labels"), pair(), strict=True)), cache_folder)
        return Pictures(arrays["images"], arrays["labels"])
    if name == "cifar10":
        batches = sorted((Path(root) / "cifar-10-batches-py").glob("*_batch*"))
        source = [name, part, root, [(f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in batches]]
        arrays = cached_arrays(source, lambda: _archive(Path(root), part), cache_folder)
        return Pictures(arrays["images"], arrays["labels"])
    files, num_classes = picture_files(Path(root), part)
    fingerprint = hashlib.sha256(repr(files).encode()).hexdigest()  # changes with each file's size and date
    arrays = cached_arrays(
        [name, part, picture_folder.VERSION, root, fingerprint], lambda: _decode(files), cache_folder
    )
    return Pictures(arrays["images"], arrays["labels"], num_classes, tuple(file.path for file in files))


def _archive(root: Path, part: Part, download: bool = False) -> Arrays:
    """Read CIFAR-10 with torchvision, which compares checksums; extract the archive if necessary.

    Raises:
        DataError: it is damaged, or cannot be downloaded.
    """
    from torchvision.datasets import CIFAR10
    from torchvision.datasets.utils import check_integrity

    packed, unpacked = root / CIFAR10.filename, root / CIFAR10.base_folder
    extract = not unpacked.is_dir() and check_integrity(str(packed), CIFAR10.tgz_md5)
    try:
        dataset = CIFAR10(str(root), train=part == "train", download=download or extract)
    except (RuntimeError, OSError, EOFError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        what = "could not be downloaded" if download else "is damaged or incomplete"
        raise DataError(f"data cifar10: the archive in {root} {what} ({reason})") from error
    return {"images": dataset.data, "labels": np.asarray(dataset.targets, dtype=np.int64)}


def _decode(files: Sequence[PictureFile]) -> Arrays:
    images = np.empty((len(files), SIZE, SIZE, 3), dtype=np.uint8)
    for i, file in enumerate(files):
        images[i] = np.asarray(open_picture(file.path))
    return {"images": images, "labels": np.array([f.label for f in files], dtype=np.int64)}


def open_picture(path: Path) -> Any:
    """Read one image file as a PIL image, RGB, 32x32.

    Raises:
        DataError: see `rgb`.
    """
    from PIL import Image

    picture = rgb(path)
    return picture if picture.size == (SIZE, SIZE) else picture.resize((SIZE, SIZE), Image.Resampling.BILINEAR)
