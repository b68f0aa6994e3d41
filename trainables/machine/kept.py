"""Figures of this machine that are measured once and kept as JSON: the first process measures, all others read."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from trainables.machine.locks import locked
from trainables.machine.prepared import default_folder
from trainables.machine.processor import name_and_generation

Figures = dict[str, Any]  # plain data
log = logging.getLogger(__name__)


def kept(
    name: str,
    source: Mapping[str, Any],
    measure: Callable[[Figures | None], Figures],
    enough: Callable[[Figures], bool] = bool,
) -> Figures:
    """What `measure` gave for this `source`, which says all that it depends on (plain data), e.g. `machine(device)`.

    `measure` is given what is there so far, and called only if that is nothing or not `enough`; by one process at a
    time. If the cache folder cannot be written, nothing is kept.
    """
    wanted = json.dumps(source, sort_keys=True)
    path = default_folder() / f"{name}-{hashlib.sha256(wanted.encode()).hexdigest()[:16]}.json"
    if (figures := _read(path, wanted)) is not None and enough(figures):
        return figures
    try:
        with locked(path.with_suffix(".lock")):
            figures = _read(path, wanted)  # another process may have measured while this one waited
            if figures is None or not enough(figures):
                figures = measure(figures)
                _write(path, wanted, figures)
            return figures
    except OSError as error:
        log.warning("%s cannot be used (%s): measured for this process alone", path.parent, error.strerror or error)
        return measure(figures)


def machine(device: torch.device, threads: int) -> Figures:
    """The fingerprint of what computes: another processor, GPU, driver or PyTorch has another one."""
    known: Figures = {"cpu": name_and_generation(), "cores": _cores(), "threads": threads, "torch": torch.__version__}
    if device.type == "cuda":
        known |= {"gpu": torch.cuda.get_device_name(device), "cuda": torch.version.cuda, "driver": _driver()}
    return known


def _read(path: Path, wanted: str) -> Figures | None:
    """What was kept; None: nothing, or torn, or of another source."""
    try:
        content = json.loads(path.read_text())
        return dict(content["figures"]) if json.dumps(content["source"], sort_keys=True) == wanted else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(path: Path, wanted: str, figures: Figures) -> None:
    unfinished = path.with_suffix(".part")
    unfinished.write_text(json.dumps({"source": json.loads(wanted), "figures": figures}, indent=1))
    unfinished.replace(path)


def _cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _driver() -> str | None:
    try:
        import pynvml

        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except Exception:  # no driver, no rights, no binding: each release fails in its own way
        return None
