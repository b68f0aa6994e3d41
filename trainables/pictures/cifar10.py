"""Where the pictures come from: CIFAR-10's own archive, a folder of pictures, or generated; all become 32x32 arrays."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from trainables.contract import Data, DataError
from trainables.machine.prepared import Arrays, default_folder, prepared
from trainables.pictures import generated

ROOT_VARIABLE = "TRAINING_SEARCH_DATA"
# Where pictures are looked for unless `data.root` or the variable says.
PLACES = ("data", "~/.cache/cifar10", "~/.cache/cifar10-images")
SPLIT_SEED = 20090408  # fixed, so that all trials of all runs are judged on the same pictures
SIZE = 32

Part = Literal["train", "test"]
Images = NDArray[np.uint8]
Labels = NDArray[np.int64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Pictures:
    """Pictures and their classes, numbered from 0."""

    images: Images  # (count, 32, 32, 3)
    labels: Labels  # (count,)
    num_classes: int = 10
    files: tuple[Path, ...] | None = None  # where each comes from, if it is a picture file of its own


@dataclass(frozen=True)
class _File:
    path: Path
    label: int
    size: int
    mtime_ns: int


# --- finding ----------------------------------------------------------------------------------------------------------


def locate(data: Data) -> Data:
    """The same with `auto` resolved (cifar10, folder, download if allowed, generated) and `root` absolute.

    Raises:
        DataError: nothing usable is there; says what was looked for and what would do.
    """
    if data.name == "generated":
        return replace(data, root=None)
    places = _places(data)
    if data.name in ("auto", "cifar10") and (root := next(filter(_has_archive, places), None)):
        _archive(root, "train")  # a damaged one is found now, not by each trial
        return replace(data, name="cifar10", root=str(root))
    if data.name in ("auto", "folder") and (root := next(filter(_has_tree, places), None)):
        return replace(data, name="folder", root=str(root))
    if data.name != "folder" and data.download:
        return replace(data, name="cifar10", root=str(_download(places[0])))
    if data.name == "auto":
        return replace(data, name="generated", root=None)
    raise DataError(_not_found(data.name, places))


def describe(data: Data) -> str:
    """Name and counts; of generated pictures also that they are no photographs. No path."""
    _, test, classes = _counts(data)
    train, _ = training_count(data)
    counts = f"{train:,} train, {data.val_images:,} validation, {test:,} test; {classes} classes"
    kind = {
        "cifar10": "CIFAR-10",
        "folder": "folder of pictures",
        "generated": "generated (not photographs)",
    }
    return f"{kind[data.name]}: {counts}"


def training_count(data: Data) -> tuple[int, int]:
    """Pictures that an epoch trains on, and classes, without reading any.

    Raises:
        DataError: validation leaves none.
    """
    train, _, classes = _counts(data)
    if not 0 < data.val_images < train:
        raise DataError(f"data.val_images {data.val_images}: there are {train:,} training pictures")
    left = train - data.val_images
    return left if data.train_images is None else min(data.train_images, left), classes


def _places(data: Data) -> list[Path]:
    named = data.root or os.environ.get(ROOT_VARIABLE)
    return [Path(place).expanduser().absolute() for place in ([named] if named else PLACES)]


def _not_found(name: str, places: Sequence[Path]) -> str:
    what, remedy = {
        "cifar10": ("cifar-10-batches-py or cifar-10-python.tar.gz", "--set data.download=true or "),
        "folder": ("train/<class>/ and test/<class>/, or at least two <class>/ with pictures", ""),
    }[name]
    return (
        f"data {name}: no {what} in {', '.join(map(str, places))}; "
        f"{remedy}--set data.root=DIR says where it is, --set data.name=generated needs no files"
    )


def _counts(data: Data) -> tuple[int, int, int]:
    """Training pictures with validation, test pictures, classes."""
    if data.name == "folder":
        (train, classes), (test, _) = (_tree(Path(data.root or ""), part) for part in ("train", "test"))
        return len(train), len(test), classes
    if data.name == "cifar10":
        return 50_000, 10_000, 10
    return _generated_count(data, "train"), _generated_count(data, "test"), len(generated.SHAPES)


def _generated_count(data: Data, part: Part) -> int:
    """As many as CIFAR-10 has, or what `train_images` needs; for testing a fifth."""
    limit = generated.NUM_TRAIN if data.train_images is None else data.train_images + data.val_images
    count = min(limit, generated.NUM_TRAIN)
    return count if part == "train" else min(generated.NUM_TEST, count // 5)


# --- loading ----------------------------------------------------------------------------------------------------------


def training_pictures(data: Data) -> Pictures:
    """All training pictures of located `data`, those for validation among them.

    Raises:
        DataError: they cannot be read.
    """
    return _pictures(data.name, data.root or "", _generated_count(data, "train"), "train", default_folder())


def test_pictures(data: Data) -> Pictures:
    """The test pictures. Nothing else reads them."""
    return _pictures(data.name, data.root or "", _generated_count(data, "test"), "test", default_folder())


@lru_cache(maxsize=2)  # a process that trains one configuration after another lists the files once
def _pictures(name: str, root: str, generated_count: int, part: Part, cache_folder: Path) -> Pictures:
    if name == "generated":
        source = [name, part, generated.VERSION, generated_count]
        arrays = prepared(source, lambda: _generate(generated_count, part), cache_folder)
        return Pictures(arrays["images"], arrays["labels"])
    if name == "cifar10":
        batches = sorted((Path(root) / "cifar-10-batches-py").glob("*_batch*"))
        source = [name, part, root, [(f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in batches]]
        arrays = prepared(source, lambda: _archive(Path(root), part), cache_folder)
        return Pictures(arrays["images"], arrays["labels"])
    files, num_classes = _tree(Path(root), part)
    arrays = prepared([name, part, root, _fingerprint(files)], lambda: _decode(files), cache_folder)
    return Pictures(arrays["images"], arrays["labels"], num_classes, tuple(file.path for file in files))


def _generate(count: int, part: Part) -> Arrays:
    images, labels = generated.generate(count, seed=0 if part == "train" else 1)
    return {"images": images, "labels": labels}


def _has_archive(root: Path) -> bool:
    return (root / "cifar-10-batches-py").is_dir() or (root / "cifar-10-python.tar.gz").is_file()


def _archive(root: Path, part: Part, download: bool = False) -> Arrays:
    """CIFAR-10 as torchvision reads it, checksums compared; an archive not yet extracted is extracted.

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


def _download(root: Path) -> Path:
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"data cifar10: {root} cannot be written ({error.strerror})") from error
    _archive(root, "train", download=True)
    return root


# --- a folder of pictures ---------------------------------------------------------------------------------------------


def _has_tree(root: Path) -> bool:
    try:
        _tree(root, "train")
    except DataError:
        return False
    return True


def _tree(root: Path, part: Part) -> tuple[list[_File], int]:
    """The picture files of one part, in an order that does not depend on the file system; the number of classes.

    `root` holds train/<class>/ and test/<class>/, or just <class>/, of which a sixth is then held out for testing.

    Raises:
        DataError: there are not at least two classes, or no pictures of the part.
    """
    divided = (root / "train").is_dir() and (root / "test").is_dir()
    classes = _classes(root / "train" if divided else root)
    if len(classes) < 2:
        raise DataError(_not_found("folder", [root]))
    files = _files(root / part if divided else root, classes)
    if not divided:
        held_out, rest = take(np.array([f.label for f in files]), len(files) // 6, seed=SPLIT_SEED)
        files = [files[i] for i in (held_out if part == "test" else rest)]
    if not files:
        raise DataError(f"data folder: no pictures for the {part} part in {root}")
    return files, len(classes)


def _classes(root: Path) -> list[str]:
    """Names of the folders with at least one picture, sorted: their places are the labels."""
    if not root.is_dir():
        return []
    with os.scandir(root) as entries:
        names = sorted(e.name for e in entries if e.is_dir() and not e.name.startswith("."))
    return [name for name in names if _pictures_in(root / name)]


def _files(root: Path, classes: Sequence[str]) -> list[_File]:
    files: list[_File] = []
    for label, name in enumerate(classes):
        for entry in _pictures_in(root / name):
            status = entry.stat()
            files.append(_File(root / name / entry.name, label, status.st_size, status.st_mtime_ns))
    return files


def _pictures_in(folder: Path) -> list[os.DirEntry[str]]:
    """By name; of no folder there are none."""
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        return sorted(filter(_is_picture, entries), key=lambda entry: entry.name)


def _is_picture(entry: os.DirEntry[str]) -> bool:
    suffix = os.path.splitext(entry.name)[1].lower()
    return suffix in _suffixes() and not entry.name.startswith(".") and entry.is_file()


@cache
def _suffixes() -> frozenset[str]:
    """Those that PIL can read."""
    from PIL import Image

    return frozenset(suffix for suffix, kind in Image.registered_extensions().items() if kind in Image.OPEN)


def _decode(files: Sequence[_File]) -> Arrays:
    images = np.empty((len(files), SIZE, SIZE, 3), dtype=np.uint8)
    for i, file in enumerate(files):
        images[i] = np.asarray(open_picture(file.path))
    return {"images": images, "labels": np.array([f.label for f in files], dtype=np.int64)}


def open_picture(path: Path) -> Any:
    """One picture file as a PIL image, RGB, 32x32.

    Raises:
        DataError: it is not a picture.
    """
    from PIL import Image

    try:
        with Image.open(path) as file:
            picture = file.convert("RGB")
    except (OSError, ValueError, SyntaxError) as error:
        raise DataError(f"data folder: {path} cannot be read as a picture") from error
    return picture if picture.size == (SIZE, SIZE) else picture.resize((SIZE, SIZE), Image.Resampling.BILINEAR)


def _fingerprint(files: Sequence[_File]) -> str:
    """Changes whenever a file comes, goes or is written to."""
    return hashlib.sha256(repr(files).encode()).hexdigest()


# --- splitting --------------------------------------------------------------------------------------------------------


def split(labels: Labels, data: Data) -> tuple[Indices, Indices]:
    """Indices of the pictures for training and for validation: disjoint, every class in its share, always the same.

    Raises:
        DataError: there are not enough pictures.
    """
    if not 0 < data.val_images < len(labels):
        raise DataError(f"data.val_images {data.val_images}: there are {len(labels):,} training pictures")
    validation, training = take(labels, data.val_images, SPLIT_SEED)
    if data.train_images is not None and data.train_images < len(training):
        chosen, _ = take(labels[training], data.train_images, SPLIT_SEED)
        training = training[chosen]
    return training, validation


def take(labels: Labels, count: int, seed: int) -> tuple[Indices, Indices]:
    """`count` indices with every class in its share, and the others; both in ascending order."""
    rng = np.random.default_rng(seed)
    # Sorted by how far each picture is along its shuffled class, any prefix has every class in its share.
    along = np.empty(len(labels))
    for label in np.unique(labels):
        mine = np.flatnonzero(labels == label)
        along[mine] = (rng.permutation(len(mine)) + rng.random()) / len(mine)
    order = np.argsort(along, kind="stable")
    return np.sort(order[:count]), np.sort(order[count:])
