"""The most memory that a trial took: on its devices, or resident in its processes and their loaders."""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch

GIB = 2**30
PROC = Path("/proc")
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


class Footprint:
    """Watches this process's memory from its making on.

    CUDA: the most that tensors took at a time (the allocator's cache is not in it). CPU: the most that was resident in
    this process, libraries and mapped pictures too, and what its loader processes have for themselves when asked.
    """

    def __init__(self, devices: Sequence[torch.device]) -> None:
        self._devices = devices
        if self._on_gpus:
            for device in devices:
                torch.cuda.reset_peak_memory_stats(device)
        else:
            self._peak_is_ours = _reset_peak()
            self._peak_before = _status("VmHWM")

    @property
    def _on_gpus(self) -> bool:
        return self._devices[0].type == "cuda"

    def peak_gib(self) -> float | None:
        """So far, on the fullest device; None: the system does not tell."""
        return max(self.peaks_gib(), default=None)

    def peaks_gib(self) -> list[float]:
        """On each GPU, or of this process; empty: the system does not tell."""
        if self._on_gpus:
            return [torch.cuda.max_memory_allocated(device) / GIB for device in self._devices]
        peak = self._of_processes()
        return [] if peak is None else [peak]

    def _of_processes(self) -> float | None:
        peak = _status("VmHWM")
        # Where the peak cannot be reset it may be an earlier trial's, unless it has risen since.
        if peak is None or not (self._peak_is_ours or peak > (self._peak_before or 0)):
            return None
        children = multiprocessing.active_children()
        return (peak + sum(private_bytes(child.pid) for child in children)) / GIB

    def available_gib(self) -> float | None:
        """What a device, or the machine or container, has in all."""
        found = available(self._devices[0])
        return None if found is None else found / GIB


def available(device: torch.device) -> int | None:
    """Bytes that `device`, or the machine or container, has in all; None: the system does not tell."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    limits = []
    with contextlib.suppress(OSError):
        limits.append(_kib(PROC.joinpath("meminfo").read_text().splitlines(), ["MemTotal"]))
    with contextlib.suppress(OSError, ValueError):  # "max": no limit
        limits.append(int(CGROUP_LIMIT.read_text()))
    return min(limits) if limits else None


def _reset_peak() -> bool:
    """Let VmHWM begin anew at what is resident now; False: not allowed here."""
    try:
        PROC.joinpath("self", "clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _status(name: str) -> int | None:
    try:
        return _kib(PROC.joinpath("self", "status").read_text().splitlines(), [name])
    except OSError:
        return None


def private_bytes(pid: int | None) -> int:
    """Bytes that a process shares with no other."""
    try:
        lines = PROC.joinpath(str(pid), "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return _kib(lines, ["Private_Clean", "Private_Dirty"])


def _kib(lines: Iterable[str], names: Iterable[str]) -> int:
    """The sum of lines like `VmHWM:  1024 kB`, in bytes."""
    wanted = tuple(f"{name}:" for name in names)
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith(wanted))
