"""What this machine has for us: cores, memory, GPUs, and which versions of what would run on it."""

from __future__ import annotations

import importlib.metadata
import math
import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

GIB = 2**30
SMALL_SHM_GIB = 0.25  # 64 MiB is what a container gets unless asked for more

# Whatever can move a figure, by the names that pip knows.
PACKAGES = ("torch", "torchvision", "ray", "optuna", "moocore", "numpy", "pandas", "pyarrow", "pydantic")


@dataclass(frozen=True)
class Gpu:
    """A GPU that this process may use."""

    name: str
    memory_gib: float


@dataclass(frozen=True)
class Machine:
    """What this process may use, which in a container is less than what the machine has."""

    cpu_name: str
    cores: int
    memory_gib: float
    shm_gib: float | None  # /dev/shm, through which loader processes pass pictures; None: there is none
    gpus: tuple[Gpu, ...] = ()

    def to_mapping(self) -> dict[str, Any]:
        """Plain data, for the journal."""
        return asdict(self) | {"gpus": [asdict(gpu) for gpu in self.gpus]}

    def __str__(self) -> str:
        gpus = [f"{gpu.name} ({gpu.memory_gib:.0f} GiB)" for gpu in self.gpus]
        counted = [f"{gpus.count(gpu)} x {gpu}" for gpu in dict.fromkeys(gpus)]
        cores = f"{self.cores} core{'s' if self.cores > 1 else ''}"
        return f"{self.cpu_name}, {cores}, {self.memory_gib:.0f} GiB memory, {', '.join(counted) or 'no GPU'}"


def describe_machine() -> Machine:
    """This machine, as far as this process may use it."""
    memory_bytes = min(psutil.virtual_memory().total, memory_limit_bytes())
    shm = Path("/dev/shm")
    return Machine(
        cpu_name=cpu_name(),
        cores=usable_cores(),
        memory_gib=memory_bytes / GIB,
        shm_gib=shutil.disk_usage(shm).total / GIB if shm.is_dir() else None,
        gpus=visible_gpus(),
    )


def small_shm(machine: Machine | None = None) -> list[str]:
    """What is to be said of a /dev/shm that loader processes cannot pass large batches through; empty: nothing."""
    size = (machine or describe_machine()).shm_gib
    if size is not None and size >= SMALL_SHM_GIB:
        return []
    has = "there is no /dev/shm" if size is None else f"/dev/shm has {size * 1024:.0f} MiB"
    return [
        f"{has}: batches of the loader `workers` that do not fit go through pipes, which is slower; "
        "in a container more is had by --shm-size=1g"
    ]


def versions() -> dict[str, str]:
    """Versions of Python and of the installed packages that can move a figure."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def git_commit(folder: Path) -> str | None:
    """`abc1234`, or `abc1234-dirty` where files that git knows have changed since; None: no repository, or no git."""
    command = ["git", "-C", f"{folder}", "describe", "--always", "--dirty", "--abbrev=7", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def cpu_name(proc: Path = Path("/proc")) -> str:
    """The processor's model name, or its architecture where that is not told."""
    try:
        lines = (proc / "cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [value.strip() for key, _, value in (line.partition(":") for line in lines) if key.strip() == "model name"]
    return " ".join(names[0].split()) if names and names[0] else platform.processor() or platform.machine()


def usable_cores(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """Cores that this process can keep busy: those it is bound to, within the quota of its control group."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.floor(min(bound, _quota_cores(proc, cgroups))))


def memory_limit_bytes(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> float:
    """What the control group allows, infinite where it sets no limit."""
    limits = [_numbers(group / "memory.max") for group in _groups(proc, cgroups, "")]
    limits += [_numbers(group / "memory.limit_in_bytes") for group in _groups(proc, cgroups, "memory")]
    return min((limit[0] for limit in limits if limit), default=math.inf)


def visible_gpus() -> tuple[Gpu, ...]:
    """The NVIDIA GPUs that CUDA_VISIBLE_DEVICES leaves to this process."""
    try:
        import pynvml

        pynvml.nvmlInit()
        try:
            return _gpus(pynvml)
        finally:
            pynvml.nvmlShutdown()
    except Exception:  # no library, no driver, no device: whatever fails on the way means that there is none
        return ()


def visible(uuids: Sequence[str], setting: str | None) -> list[int]:
    """Which of the devices CUDA would show, by its rules: numbers or beginnings of UUIDs, up to the first bad one."""
    if setting is None:
        return list(range(len(uuids)))
    shown: list[int] = []
    for entry in setting.split(","):
        name = entry.strip()
        found = [i for i, uuid in enumerate(uuids) if name == f"{i}" or (name[:4] == "GPU-" and uuid.startswith(name))]
        if len(found) != 1 or found[0] in shown:
            break
        shown += found
    return shown


def _gpus(nvml: Any) -> tuple[Gpu, ...]:
    handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    uuids = [_text(nvml.nvmlDeviceGetUUID(handle)) for handle in handles]
    shown = [handles[i] for i in visible(uuids, os.environ.get("CUDA_VISIBLE_DEVICES"))]
    return tuple(
        Gpu(_text(nvml.nvmlDeviceGetName(handle)), nvml.nvmlDeviceGetMemoryInfo(handle).total / GIB) for handle in shown
    )


def _quota_cores(proc: Path, cgroups: Path) -> float:
    quotas = [_numbers(group / "cpu.max") for group in _groups(proc, cgroups, "")]
    quotas += [
        [*_numbers(group / "cpu.cfs_quota_us"), *_numbers(group / "cpu.cfs_period_us")]
        for group in _groups(proc, cgroups, "cpu")
    ]
    return min((pair[0] / pair[1] for pair in quotas if len(pair) == 2 and min(pair) > 0), default=math.inf)


def _groups(proc: Path, cgroups: Path, controller: str) -> list[Path]:
    """The folders of this process's control group and of those around it; controller "": version 2."""
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
    except OSError:
        return []
    root = cgroups / controller
    for _, controllers, path in (line.split(":", 2) for line in lines if line.count(":") >= 2):
        if controller in controllers.split(","):
            group = root / path.lstrip("/")
            return [group, *(parent for parent in group.parents if parent.is_relative_to(root))]
    return []


def _numbers(file: Path) -> list[float]:
    """The numbers in a small file; "max" is infinite. Empty where there is no such file."""
    try:
        return [math.inf if word == "max" else float(word) for word in file.read_text().split()]
    except (OSError, ValueError):
        return []


def _text(value: str | bytes) -> str:
    """The binding gives bytes in its older releases."""
    return value.decode() if isinstance(value, bytes) else value
