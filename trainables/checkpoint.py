"""Checkpoint of a trial: one file in its folder, replaced by rename, and the times at which it is written."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.serialization import get_unsafe_globals_in_checkpoint, safe_globals
from torch.utils._pytree import keystr, tree_leaves, tree_leaves_with_path

from trainables.contract import Measurement
from trainables.machine.exception_chain import exception_chain

FILE_NAME = "checkpoint.pt"
WRITING_SHARE = 0.02  # of the time between two checkpoints
# What restores NumPy's numbers and arrays, by functions without a public name. PyTorch reads nothing else that is not
# its own or Python's.
NUMPY: list[Any] = [
    *(np.ndarray, np.dtype, np.zeros(0).__reduce__()[0], np.float64().__reduce__()[0], bytes),
    *{type(np.dtype(code)) for code in np.typecodes["All"]},
]
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """State after `measurement.epoch`. `network` holds the settings that the state depends on."""

    network: Mapping[str, Any]
    measurement: Measurement
    state: Mapping[str, Any]


class Schedule:
    """Times of a training's checkpoints: between two of them it trains so long that writing takes WRITING_SHARE of it.

    The first epoch always has one. It shows how long writing takes, and that the disk has the space.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._due_at = clock()

    def is_due(self) -> bool:
        """Return whether the epoch that has just ended gets a checkpoint."""
        return self._clock() >= self._due_at

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Time the writing of a checkpoint, to know when the next one is due."""
        started = self._clock()
        yield
        ended = self._clock()
        self._due_at = ended + (ended - started) / WRITING_SHARE


def save(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint and replace the last one by rename, so that a kill leaves one of the two.

    Raises:
        TypeError: the state has a value that `load` would not read.
    """
    unfinished = folder / f"{FILE_NAME}.part"
    measurement = checkpoint.measurement
    content = {
        "network": dict(checkpoint.network),
        "epoch": measurement.epoch,
        "metrics": dict(measurement.metrics),
        "samples": dict(measurement.samples),
        "state": dict(checkpoint.state),
    }
    try:
        with unfinished.open("wb") as file:  # with a path, torch hides a full disk in another error
            torch.save(content, file)
        _check_readable(unfinished, checkpoint.state)
    except BaseException as error:
        unfinished.unlink(missing_ok=True)  # a partial file would keep a full disk full
        cause = next((each for each in exception_chain(error) if isinstance(each, OSError)), None)
        if cause is not None:
            what = f"{cause.strerror}: {tensor_bytes(content):,} bytes are needed"
            raise OSError(cause.errno, what, str(folder / FILE_NAME)) from error
        raise
    unfinished.replace(folder / FILE_NAME)


def _check_readable(file: Path, state: Mapping[str, Any]) -> None:
    with safe_globals(NUMPY):
        unknown = get_unsafe_globals_in_checkpoint(str(file))
    if unknown:
        leaves = [named for part in state.values() for named in tree_leaves_with_path(part)]
        found = (
            f"checkpoint{keystr(path)} is a {type(leaf).__name__}"
            for path, leaf in leaves
            if f"{type(leaf).__module__}.{type(leaf).__qualname__}" in unknown
        )
        raise TypeError(f"{next(found, ', '.join(unknown))}, which is not read again, as it may run code")


def tensor_bytes(content: Any) -> int:
    """Return the bytes of the tensors in nested mappings and sequences."""
    return sum(leaf.nbytes for leaf in tree_leaves(content) if isinstance(leaf, torch.Tensor))


def load(folder: Path, network: Mapping[str, Any]) -> Checkpoint | None:
    """Load the folder's checkpoint of that network; None without one, with a warning if it is damaged or different."""
    path = folder / FILE_NAME
    try:
        with safe_globals(NUMPY):
            content = torch.load(path, map_location="cpu", weights_only=True)
        measurement = Measurement(content["epoch"], content["metrics"], content.get("samples", {}))
        checkpoint = Checkpoint(content["network"], measurement, content["state"])
    except FileNotFoundError:
        return None
    except Exception as error:  # a damaged file raises any error of the unpickler
        log.warning("%s cannot be read (%s): the trial starts again", path, str(error).partition("\n")[0])
        return None
    if checkpoint.network != network:
        log.warning("%s is of another network (%s): the trial starts again", path, dict(checkpoint.network))
        return None
    return checkpoint
