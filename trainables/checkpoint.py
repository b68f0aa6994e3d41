"""A trial's checkpoint: one file in its folder, replaced by rename after each epoch."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from trainables.contract import Measurement

FILE_NAME = "checkpoint.pt"
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """Enough to go on behind `measurement.epoch`, or to test. `network` says what the state fits."""

    network: Mapping[str, Any]
    measurement: Measurement
    state: Mapping[str, Any]


def save(folder: Path, checkpoint: Checkpoint) -> None:
    """Write it beside the last one, then take its place: a kill leaves the one or the other."""
    unfinished = folder / f"{FILE_NAME}.part"
    measurement = checkpoint.measurement
    content = {
        "network": dict(checkpoint.network),
        "epoch": measurement.epoch,
        "metrics": dict(measurement.metrics),
        "state": dict(checkpoint.state),
    }
    try:
        with unfinished.open("wb") as file:  # given a path, torch does not tell a full disk from other faults
            torch.save(content, file)
    except BaseException as error:
        unfinished.unlink(missing_ok=True)  # half of it would fill a full disk for nothing
        if (cause := _of_the_system(error)) is not None:
            what = f"{cause.strerror}: {_tensor_bytes(content):,} bytes are needed"
            raise OSError(cause.errno, what, str(folder / FILE_NAME)) from error
        raise
    unfinished.replace(folder / FILE_NAME)


def _of_the_system(error: BaseException | None) -> OSError | None:
    """What torch wraps in an error of its own."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__ or error.__context__
    return error


def _tensor_bytes(content: Any) -> int:
    if isinstance(content, torch.Tensor):
        return content.nbytes
    items = content.values() if isinstance(content, Mapping) else content if isinstance(content, list | tuple) else ()
    return sum(map(_tensor_bytes, items))


def load(folder: Path, network: Mapping[str, Any]) -> Checkpoint | None:
    """The folder's checkpoint of that network; None, with a warning if there is another one or a damaged one."""
    path = folder / FILE_NAME
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        measurement = Measurement(content["epoch"], content["metrics"])
        checkpoint = Checkpoint(content["network"], measurement, content["state"])
    except FileNotFoundError:
        return None
    except Exception as error:  # a torn file raises whatever the unpickler stumbles over
        log.warning("%s cannot be read (%s): the trial begins anew", path, str(error).partition("\n")[0])
        return None
    if checkpoint.network != network:
        log.warning("%s is of another network (%s): the trial begins anew", path, dict(checkpoint.network))
        return None
    return checkpoint
