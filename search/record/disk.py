"""Atomic writes, and messages about files that could not be written."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_out_of_space(error: BaseException) -> bool:
    """Return whether the error is a full disk, quota or file size."""
    return isinstance(error, OSError) and error.errno in FULL


def describe_os_error(error: OSError) -> str:
    """Return one line: the path, the problem and, for a full disk, the free space."""
    what = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)
    if not is_out_of_space(error) or error.filename is None:
        return what
    with contextlib.suppress(OSError):
        place = next(path for path in Path(error.filename).absolute().parents if path.is_dir())
        return f"{what}; {shutil.disk_usage(place).free:,} bytes are free in {place}"
    return what


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file such that readers see the old content or the new one; after an error nothing partial is left.

    Raises:
        OSError: with the path.
    """
    unfinished = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.partial")  # of this writer alone
    try:
        write(unfinished)
        os.replace(unfinished, path)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)


def write_text_atomically(path: Path, text: str) -> None:
    """Write a text in UTF-8 as `write_atomically` does."""
    write_atomically(path, lambda unfinished: unfinished.write_text(text, encoding="utf-8"))


def check_writable(folder: Path) -> None:
    """Check that the folder, or the nearest existing one above it, can be written to.

    Raises:
        OSError: it is not a folder, or cannot be written to.
    """
    place = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    if not place.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "not a folder", str(place))
    if not os.access(place, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "cannot be written to", str(place))
