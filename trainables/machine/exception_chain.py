"""Traversal of an exception's chain: frameworks wrap errors and raise further ones while they clean up."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path


def exception_chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error itself, then what it was raised from or while handling, and so on."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def described(error: BaseException, folder: Path) -> str:
    """Return type and first line of an error, and the last place in `folder` that it passed."""
    first = next(iter(str(error).strip().splitlines()), "")
    text = f"{type(error).__name__}: {first}" if first else type(error).__name__
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_within(frame.filename, folder)]
    return f"{text} ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else text


def is_within(filename: str, folder: Path) -> bool:
    """Return whether a file is one of the user's in that folder, and of no library."""
    return folder in Path(filename).parents and "site-packages" not in filename
