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
        torch.save(content, unfinished)
    except BaseException:
        unfinished.unlink(missing_ok=True)  # half of it would fill a full disk for nothing
        raise
    unfinished.replace(folder / FILE_NAME)


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
