"""Disk cache of arrays: the first process computes them, all others map the same pages."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.machine.locks import locked

Arrays = Mapping[str, NDArray[Any]]

CONTENTS = "contents.json"  # written last: a folder without it is incomplete
log = logging.getLogger(__name__)


def default_folder() -> Path:
    """Return the cache folder of this user."""
    return Path(os.path.expanduser(os.environ.get("TRAINING_SEARCH_CACHE", "~/.cache/training-search")))


def cached_arrays(source: Any, make: Callable[[], Arrays], folder: Path) -> Arrays:
    """Return the arrays of `make`, read-only and mapped from `folder`; `make` is called only if they are missing.

    `source` is all that they depend on (plain data). If `folder` cannot be written, the arrays stay in memory.
    """
    wanted = json.dumps(source, sort_keys=True)
    place = folder / hashlib.sha256(wanted.encode()).hexdigest()[:24]
    if (arrays := _open(place, wanted)) is not None:
        return arrays
    try:
        with locked(place.with_suffix(".lock")):
            if (arrays := _open(place, wanted)) is None:  # another process may have written them meanwhile
                _write(place, wanted, made := make())
                arrays = _open(place, wanted) or made
    except OSError as error:
        log.warning("%s cannot be used (%s): the images are prepared in memory", folder, error.strerror or error)
        arrays = make()
    return arrays


def _write(place: Path, wanted: str, arrays: Arrays) -> None:
    """Write to another folder, then rename it, so that `place` is never incomplete."""
    unfinished = place.with_suffix(".part")
    for old in (unfinished, place):
        shutil.rmtree(old, ignore_errors=True)
    unfinished.mkdir()
    try:
        for name, array in arrays.items():
            np.save(unfinished / f"{name}.npy", array, allow_pickle=False)
        (unfinished / CONTENTS).write_text(json.dumps({"source": wanted, "arrays": list(arrays)}))
        unfinished.rename(place)
    except OSError:
        shutil.rmtree(unfinished, ignore_errors=True)  # incomplete data would only fill the disk
        raise


def _open(place: Path, wanted: str) -> Arrays | None:
    """Return the stored arrays; None: missing, damaged or from another source."""
    try:
        contents = json.loads((place / CONTENTS).read_text())
        if contents["source"] != wanted:
            raise ValueError("from another source")
        return {name: np.load(place / f"{name}.npy", mmap_mode="r") for name in contents["arrays"]}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("%s is damaged (%s): prepared again", place, error)
        return None
