"""Peak memory of a trial: allocated and reserved on its devices, or resident in its processes and their loaders."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence

import psutil
import torch

from trainables.process_limits import PROC, counter, memory_bytes

GIB = 2**30


class _LeftOver:
    """Memory of this process that its trials after the first one have left, such as code of libraries for their shapes.

    A process that trains only one of them does not have it, so that it is no part of that trial's peak.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self._after_first: int | None = None  # resident after the first trial, with all libraries loaded

    def begin(self) -> None:
        """Note what is resident before a trial."""
        self.bytes = 0 if self._after_first is None else max(0, resident_bytes() - self._after_first)

    def end(self) -> None:
        """Note what is resident after a trial that succeeded."""
        if self._after_first is None:
            self._after_first = resident_bytes()


LEFT_OVER = _LeftOver()


class PeakMemory:
    """Peak memory of this process since the object was made.

    CUDA: the most that tensors took at a time, without the allocator's cache. CPU: the most that was resident in this
    process, libraries and mapped images included, plus the private memory of its loader processes when asked. What
    earlier trials have left is not counted. Where the system does not let a process reset its peak, as macOS and some
    containers, it is the most of all samples.
    """

    def __init__(self, devices: Sequence[torch.device]) -> None:
        self._devices = devices
        self._on_gpus = devices[0].type == "cuda"
        self._sampled: int | None = None  # most bytes of the samples; None: the kernel's own peak counts
        if self._on_gpus:
            torch.cuda.init()  # type: ignore[no-untyped-call]  # without it, resetting fails
            torch.cuda.empty_cache()  # of earlier work, which would count as reserved
            for device in devices:
                torch.cuda.reset_peak_memory_stats(device)
        elif not _reset_peak():
            self._sampled = 0

    def sample(self) -> None:
        """Note what is resident now, where the system's peak may be that of earlier work."""
        if self._sampled is not None:
            self._sampled = max(self._sampled, resident_bytes())

    def peak_gib(self) -> float:
        """Return the peak so far on the fullest device."""
        return max(self.peaks_gib())

    def peaks_gib(self) -> list[float]:
        """Return the peak on each GPU, or of this process."""
        if self._on_gpus:
            return [torch.cuda.max_memory_allocated(device) / GIB for device in self._devices]
        self.sample()
        peak = (_highest_resident() if self._sampled is None else self._sampled) - LEFT_OVER.bytes
        return [(peak + sum(private_bytes(child.pid) for child in multiprocessing.active_children())) / GIB]

    def peak_reserved_gib(self) -> float | None:
        """Return the peak of the allocator, its cache included, on the fullest GPU; None: on a CPU."""
        if not self._on_gpus:
            return None
        return max(torch.cuda.max_memory_reserved(device) / GIB for device in self._devices)

    def available_gib(self) -> float:
        """Return the total memory of a device, or of the machine or container."""
        return available(self._devices[0]) / GIB


def available(device: torch.device) -> int:
    """Return the total bytes of `device`, or of the machine or container."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return memory_bytes()


def resident_bytes() -> int:
    """Return the bytes of this process that are in memory now."""
    return int(psutil.Process().memory_info().rss)


def private_bytes(pid: int | None) -> int:
    """Return the bytes that a process shares with no other; 0: it has ended."""
    try:
        return int(psutil.Process(pid).memory_full_info().uss)
    except (psutil.Error, OSError):
        return 0


def _reset_peak() -> bool:
    """Reset the kernel's peak (VmHWM) to what is resident now; False: not permitted."""
    try:
        PROC.joinpath("self", "clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _highest_resident() -> int:
    return 1024 * (counter(PROC / "self" / "status", "VmHWM:") or 0)
