"""Peak memory of a trial: allocated and reserved on its devices, or resident in its processes and their loaders."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
from collections.abc import Iterable, Sequence

import torch

from trainables.control_groups import CGROUPS, PROC, memory_limit_bytes

GIB = 2**30


class PeakMemory:
    """Peak memory of this process since the object was made.

    CUDA: the most that tensors took at a time, without the allocator's cache. CPU: the most that was resident in this
    process, libraries and mapped images included, plus the private memory of its loader processes when asked.
    """

    def __init__(self, devices: Sequence[torch.device]) -> None:
        self._devices = devices
        self._on_gpus = devices[0].type == "cuda"
        if self._on_gpus:
            torch.cuda.init()  # type: ignore[no-untyped-call]  # without it, resetting fails
            torch.cuda.empty_cache()  # of earlier work, which would count as reserved
            for device in devices:
                torch.cuda.reset_peak_memory_stats(device)
        else:
            self._peak_is_ours = _reset_peak()
            self._peak_before = _highest_resident()

    def peak_gib(self) -> float | None:
        """Return the peak so far on the fullest device; None: not readable."""
        return max(self.peaks_gib(), default=None)

    def peaks_gib(self) -> list[float]:
        """Return the peak on each GPU, or of this process; empty: not readable."""
        if self._on_gpus:
            return [torch.cuda.max_memory_allocated(device) / GIB for device in self._devices]
        peak = _highest_resident()
        # A peak that cannot be reset may be an earlier trial's, unless it has risen since.
        if peak is None or not (self._peak_is_ours or peak > (self._peak_before or 0)):
            return []
        children = multiprocessing.active_children()
        return [(peak + sum(private_bytes(child.pid) for child in children)) / GIB]

    def peak_reserved_gib(self) -> float | None:
        """Return the peak of the allocator, its cache included, on the fullest GPU; None: on a CPU."""
        if not self._on_gpus:
            return None
        return max(torch.cuda.max_memory_reserved(device) / GIB for device in self._devices)

    def available_gib(self) -> float | None:
        """Return the total memory of a device, or of the machine or container."""
        found = available(self._devices[0])
        return None if found is None else found / GIB


def available(device: torch.device) -> int | None:
    """Return the total bytes of `device`, or of the machine or container; None: not readable."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    least = memory_limit_bytes(PROC, CGROUPS)
    with contextlib.suppress(OSError):
        least = min(least, _sum_of(PROC.joinpath("meminfo").read_text().splitlines(), ["MemTotal"]))
    return None if math.isinf(least) else int(least)


def private_bytes(pid: int | None) -> int:
    """Return the bytes that a process shares with no other."""
    try:
        lines = PROC.joinpath(str(pid), "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return _sum_of(lines, ["Private_Clean", "Private_Dirty"])


def _reset_peak() -> bool:
    """Reset the kernel's peak (VmHWM) to what is resident now; False: not permitted."""
    try:
        PROC.joinpath("self", "clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _highest_resident() -> int | None:
    try:
        return _sum_of(PROC.joinpath("self", "status").read_text().splitlines(), ["VmHWM"])
    except OSError:
        return None


def _sum_of(lines: Iterable[str], names: Iterable[str]) -> int:
    """Sum lines like `VmHWM:  1024 kB`, in bytes."""
    wanted = tuple(f"{name}:" for name in names)
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith(wanted))
