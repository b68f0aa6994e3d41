"""Sources of images: the CIFAR-10 archive, a folder of image files, or generated ones; all become 32x32 arrays."""

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from trainables.contract import Data, DataError
from trainables.machine.array_cache import Arrays, cached_arrays, default_folder
from trainables.samples import generated

ROOT_VARIABLE = "TRAINING_SEARCH_DATA"
# Searched in this order, unless `data.root` or the environment variable names a place.
PLACES = ("data", "~/.cache/cifar10", "~/.cache/cifar10-images")
SPLIT_SEED = 20090408  # fixed, so that all trials of all runs are evaluated on the same images
SIZE = 32
VERSION = 3  # of how image files are read, part of the key of cached copies

STUBS = {"BUFR", "GRIB", "HDF5", "MPEG"}  # formats that Pillow names without reading them
CONTENTS = {  # of a data folder
    "cifar10": "cifar-10-batches-py or cifar-10-python.tar.gz",
    "folder": "train/<class>/ and test/<class>/, or at least two <class>/ with pictures",
}
Part = Literal["train", "test"]
Images = NDArray[np.uint8]
Labels = NDArray[np.int64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Pictures:
    """Images and their classes, numbered from 0."""

    images: Images  # (count, 32, 32, 3)
    labels: Labels  # (count,)
    num_classes: int = 10
    files: tuple[Path, ...] | None = None  # of each image, if it comes from a file of its own


@dataclass(frozen=True)
class PictureFile:
    """A picture in a folder of classes."""

    path: Path
    label: int
    size: int
    mtime_ns: int


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


def check_folder(root: Path) -> None:
    """Check that there is a folder.

    Raises:
        DataError: there is none.
    """
    if not root.is_dir():
        raise DataError(f"data.root {root}: {'not a folder' if root.exists() else 'no such folder'}")


def describe(data: Data) -> str:
    """Describe the data by name and counts, without paths; generated images are marked as such."""
    _, test, classes = _counts(data)
    train, _ = training_count(data)
    counts = f"{train:,} train, {data.val_images:,} validation, {test:,} test; {classes} classes"
    kinds = {"cifar10": "CIFAR-10", "folder": "folder of pictures", "generated": "generated (not photographs)"}
    of_folder = _described_folder(Path(data.root or "")) if data.name == "folder" else ""
    return f"{kinds[data.name]}: {counts}{of_folder}"


def training_count(data: Data) -> tuple[int, int]:
    """Return the number of images that an epoch trains on, and of classes, without reading any image.

    Raises:
        DataError: validation leaves no image to train on.
    """
    train, _, classes = _counts(data)
    if not 0 <= data.val_images < train:
        raise DataError(_out_of_range(data.val_images, train))
    left = train - data.val_images
    return left if data.train_images is None else min(data.train_images, left), classes


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
        f"{'--set data.download=true or ' * (name == 'cifar10')}--set data.root=DIR says where it is, "
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


def _described_folder(root: Path) -> str:
    """Name the first and the last class, by which folders with equal counts differ, and the folders that are unused."""
    _, classes = _layout(root)
    named, unused = f", {classes[0]} to {classes[-1]}", _unused(root)
    if not unused:
        return named
    first, others = unused[0], len(unused) - 1
    more = f" and {others:,} more folder{'s' * (others > 1)}" if others else ""
    return f"{named}; not used: pictures in {first}{more}"


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
    arrays = cached_arrays([name, part, VERSION, root, fingerprint], lambda: _decode(files), cache_folder)
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


def picture_files(root: Path, part: Part) -> tuple[list[PictureFile], int]:
    """List the image files of one part, in an order that does not depend on the file system; count the classes.

    torchvision's ImageFolder would import torch (6 s, 650 MB resident) into processes that only list files.
    `root` contains train/<class>/ and test/<class>/, or only train/<class>/ or <class>/, of which a sixth is then held
    out for testing. The positions of the classes are the labels.

    Raises:
        DataError: there are fewer than two classes, or no images of the part.
    """
    folders, classes = _layout(root)
    if len(classes) < 2:
        raise DataError(f"data folder: no {CONTENTS['folder']} in {root}")
    files = []
    for label, name in enumerate(classes):
        for entry in _images_in(folders[part] / name):
            status = entry.stat()
            files.append(PictureFile(folders[part] / name / entry.name, label, status.st_size, status.st_mtime_ns))
    if folders["train"] == folders["test"]:
        held_out, rest = stratified_sample(np.array([f.label for f in files]), len(files) // 6, seed=SPLIT_SEED)
        files = [files[i] for i in (held_out if part == "test" else rest)]
    if not files:
        raise DataError(f"data folder: {root} has no pictures for the {part} part; it needs six or more")
    return files, len(classes)


def _layout(root: Path) -> tuple[dict[Part, Path], list[str]]:
    """Return the folder of each part, the same one if they are not divided, and the classes, sorted by name."""
    train, test, classes = root / "train", root / "test", _classes(root / "train")
    has_no_class = test.is_dir() and not _classes(test) and _images_in(test)  # such as those of a competition
    if train.is_dir() and test.is_dir() and not (classes and has_no_class):
        return {"train": train, "test": test}, classes
    folder = train if classes else root
    return {"train": folder, "test": folder}, classes or _classes(root)


def _classes(folder: Path) -> list[str]:
    """List the folders with at least one image."""
    return [entry.name for entry in _visible(folder) if entry.is_dir() and _images_in(folder / entry.name)]


def _unused(root: Path) -> list[str]:
    """List the folders whose images belong to no class, such as those in the folder of a class."""
    folders, classes = _layout(root)
    used, unused = {folder / name for folder in folders.values() for name in classes}, []
    for place, inner, _ in os.walk(root):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        if Path(place) not in used and _images_in(Path(place)):
            unused.append(os.path.relpath(place, root))
    return unused


def _visible(folder: Path) -> list[os.DirEntry[str]]:
    """List the entries that are not hidden, by name; empty if there is no such folder."""
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        return sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda entry: entry.name)


def _images_in(folder: Path) -> list[os.DirEntry[str]]:
    from PIL import Image

    known = {s for s, kind in Image.registered_extensions().items() if kind in Image.OPEN and kind not in STUBS}
    return [e for e in _visible(folder) if os.path.splitext(e.name)[1].lower() in known and e.is_file()]


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


def rgb(path: Path, enough: int | None = None) -> Any:
    """Read one image file as a PIL image, RGB, of its own size; of 16 bits a pixel the higher 8.

    It is turned as its EXIF orientation says, and what is transparent is white. A JPEG is decoded to an eighth, a
    quarter or a half of its size where its sides then still have `enough` pixels.

    Raises:
        DataError: it is not an image, or its pixels are other numbers.
    """
    from PIL import Image, ImageOps

    Image.MAX_IMAGE_PIXELS = None  # the files are the user's own, and pictures of satellites and tissue are large
    try:
        with Image.open(path) as file:
            if enough is not None:
                file.draft("RGB", (enough, enough))
            if file.mode[0] not in "IF":
                upright = ImageOps.exif_transpose(file)
                if not upright.has_transparency_data:
                    return upright.convert("RGB")
                white = Image.new("RGBA", upright.size, "white")
                return Image.alpha_composite(white, upright.convert("RGBA")).convert("RGB")
            pixels = np.asarray(ImageOps.exif_transpose(file))  # Pillow would clip them at 255
    except FileNotFoundError as error:
        raise DataError(f"data.root: {path} is gone since the data were listed; start again") from error
    except Exception as error:  # of a damaged header, such as MemoryError
        raise DataError(f"data.root: {path} cannot be read as a picture; remove it") from error
    if pixels.dtype.kind == "f" or pixels.min() < 0 or pixels.max() >= 2**16:
        raise DataError(f"data.root: {path} has values other than whole numbers of 16 bits")
    return Image.fromarray((pixels >> 8).astype(np.uint8)).convert("RGB")


def _out_of_range(validation: int, train: int) -> str:
    few = max(1, train // 5)
    return (
        f"data.val_images {validation}: expected 0 to {train - 1:,} of the {train:,} training pictures; {few} would do"
    )


def split(labels: Labels, data: Data) -> tuple[Indices, Indices]:
    """Return the indices of training and of validation images: disjoint, stratified by class, always the same.

    Raises:
        DataError: there are not enough images.
    """
    if not 0 <= data.val_images < len(labels):
        raise DataError(_out_of_range(data.val_images, len(labels)))
    validation, training = stratified_sample(labels, data.val_images, SPLIT_SEED)
    if data.train_images is not None and data.train_images < len(training):
        chosen, _ = stratified_sample(labels[training], data.train_images, SPLIT_SEED)
        training = training[chosen]
    return training, validation


def stratified_sample(labels: Labels, count: int, seed: int) -> tuple[Indices, Indices]:
    """Return `count` indices, stratified by class, and the remaining ones; both in ascending order."""
    rng = np.random.default_rng(seed)
    # Each image gets its relative position in its shuffled class; any prefix by position has each class in its share.
    along = np.empty(len(labels))
    for label in np.unique(labels):
        mine = np.flatnonzero(labels == label)
        along[mine] = (rng.permutation(len(mine)) + rng.random()) / len(mine)
    order = np.argsort(along, kind="stable")
    return np.sort(order[:count]), np.sort(order[count:])
