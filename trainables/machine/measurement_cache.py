"""Disk cache of measurements of this machine, as JSON: the first process measures, all others read."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from trainables.machine.allocator import return_free_memory
from trainables.machine.array_cache import default_folder
from trainables.machine.locks import locked
from trainables.machine.processor import name_and_generation
from trainables.process_limits import allowed_cores

Figures = dict[str, Any]  # plain data
log = logging.getLogger(__name__)


def cached_measurement(
    name: str,
    source: Mapping[str, Any],
    measure: Callable[[Figures | None], Figures],
    enough: Callable[[Figures], bool] = bool,
) -> Figures:
    """Return the stored result of `measure` for this `source`; measure if there is none or it is not `enough`.

    `source` is all that the result depends on (plain data), e.g. `machine_fingerprint(device)`. `measure` is given the
    stored result. One process measures at a time. If the cache folder cannot be written, nothing is stored.
    """
    wanted = json.dumps(source, sort_keys=True)
    path = default_folder() / f"{name}-{hashlib.sha256(wanted.encode()).hexdigest()[:16]}.json"
    if (figures := _read(path, wanted)) is not None and enough(figures):
        return figures
    try:
        with locked(path.with_suffix(".lock")):
            figures = _read(path, wanted)  # another process may have measured meanwhile
            if figures is None or not enough(figures):
                figures = measure(figures)
                return_free_memory()  # else it would count as the memory of the trial that measured
                unfinished = path.with_suffix(".part")
                unfinished.write_text(json.dumps({"source": source, "figures": figures}, indent=1))
                unfinished.replace(path)
            return figures
    except OSError as error:
        log.warning("%s cannot be used (%s): measured for this process alone", path.parent, error.strerror or error)
        return measure(figures)


def machine_fingerprint(device: torch.device, threads: int) -> Figures:
    """Identify the processor, GPU, driver, PyTorch and threads that compute."""
    known: Figures = {
        "cpu": name_and_generation(),
        "cores": len(allowed_cores()),
        "threads": threads,
        "torch": torch.__version__,
    }
    if device.type == "cuda":
        known |= {"gpu": torch.cuda.get_device_name(device), "cuda": torch.version.cuda, "driver": _driver()}
    return known


def _read(path: Path, wanted: str) -> Figures | None:
    """Return the stored result; None: missing, damaged or from another source."""
    try:
        content = json.loads(path.read_text())
        return dict(content["figures"]) if json.dumps(content["source"], sort_keys=True) == wanted else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _driver() -> str | None:
    try:
        import pynvml

        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except Exception:  # no driver, permission or binding: each release fails in its own way
        return None
