"""Folder of pictures by class: its classes, the files of each part, and a picture as Pillow reads it."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from trainables.contract import DataError
from trainables.samples.split import SEED, stratified_sample

CONTENTS = "train/<class>/ and test/<class>/, or at least two <class>/ with pictures"
VERSION = 3  # of how files are read, part of the key of cached copies
STUBS = {"BUFR", "GRIB", "HDF5", "MPEG"}  # formats that Pillow names without reading them
Part = Literal["train", "test"]


@dataclass(frozen=True)
class PictureFile:
    """A picture in a folder of classes."""

    path: Path
    label: int
    size: int
    mtime_ns: int


def check_folder(root: Path) -> None:
    """Check that there is a folder.

    Raises:
        DataError: there is none.
    """
    if not root.is_dir():
        raise DataError(f"data.root {root}: {'not a folder' if root.exists() else 'no such folder'}")


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
        raise DataError(f"data folder: no {CONTENTS} in {root}")
    files = []
    for label, name in enumerate(classes):
        for entry in _images_in(folders[part] / name):
            status = entry.stat()
            files.append(PictureFile(folders[part] / name / entry.name, label, status.st_size, status.st_mtime_ns))
    if folders["train"] == folders["test"]:
        held_out, rest = stratified_sample(np.array([f.label for f in files]), len(files) // 6, seed=SEED)
        files = [files[i] for i in (held_out if part == "test" else rest)]
    if not files:
        raise DataError(f"data folder: {root} has no pictures for the {part} part; it needs six or more")
    return files, len(classes)


def described(root: Path) -> str:
    """Name the first and the last class, by which folders with equal counts differ, and the folders that are unused."""
    _, classes = _layout(root)
    named, unused = f", {classes[0]} to {classes[-1]}", _unused(root)
    if not unused:
        return named
    first, others = unused[0], len(unused) - 1
    more = f" and {others:,} more folder{'s' * (others > 1)}" if others else ""
    return f"{named}; not used: pictures in {first}{more}"


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
