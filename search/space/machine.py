"""Description of this machine: usable cores, memory, GPUs, and the versions of the packages that matter."""

import importlib.metadata
import math
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field

from search.limits import MAX_COUNT
from search.text.numbers import plural
from trainables.contract import Resources
from trainables.process_limits import CGROUPS, PROC, allowed_cores, limits, memory_bytes

GIB = 2**30
WORKING = ("user", "nice", "system", "irq", "softirq", "steal")  # what a core's time may go to, but waiting
SMALL_SHM_GIB = 0.25  # a container's default is 64 MiB

# Packages whose version can change a result, by their names in pip.
LIBRARIES = ("torch", "torchvision", "ray", "optuna", "moocore", "numpy", "pandas", "pyarrow", "pydantic")
PACKAGES = ("training-search", *LIBRARIES)


@dataclass(frozen=True)
class Gpu:
    """GPU that this process may use."""

    name: str
    memory_gib: float  # 0: not known

    def __str__(self) -> str:
        return f"{self.name} ({self.memory_gib:.0f} GiB)" if self.memory_gib else self.name


@dataclass(frozen=True)
class Machine:
    """Resources that this process may use; in a container, less than the machine has."""

    cpu_name: str
    cores: Annotated[int, Field(ge=1, lt=MAX_COUNT)]
    memory_gib: float
    shm_gib: float | None = None  # /dev/shm, through which loader processes pass samples on Linux; None: absent
    gpus: tuple[Gpu, ...] = ()
    num_nodes: Annotated[int, Field(ge=1, lt=MAX_COUNT)] = 1

    @property
    def resources(self) -> Resources:
        """Resources that a trial can use."""
        return Resources(cpus=self.cores, gpus=len(self.gpus))

    def difference(self, here: Self) -> str | None:
        """Return the first fact that affects a rate and is another one here, as text; None: there is none."""
        for key in ("cpu_name", "cores", "gpus", "num_nodes"):
            if (found := getattr(self, key)) != (other := getattr(here, key)):
                if key == "gpus":
                    found, other = (", ".join(map(str, gpus)) or "none" for gpus in (found, other))
                return f"{key} {found} there, {other} here"
        return None

    def to_mapping(self) -> dict[str, Any]:
        """Return plain data, for the journal."""
        return asdict(self) | {"gpus": [asdict(gpu) for gpu in self.gpus]}

    def __str__(self) -> str:
        gpus = [str(gpu) for gpu in self.gpus]
        counted = ", ".join(f"{gpus.count(gpu)} x {gpu}" for gpu in dict.fromkeys(gpus)) or "no GPU"
        return f"{self.cpu_name}, {plural(self.cores, 'core')}, {self.memory_gib:.0f} GiB memory, {counted}"


def describe_machine() -> Machine:
    """Describe the part of this machine that this process may use."""
    shm = Path("/dev/shm")
    shm_gib = shutil.disk_usage(shm).total / GIB if shm.is_dir() else None
    return Machine(cpu_name(), usable_cores(), memory_bytes() / GIB, shm_gib, visible_gpus())


def shm_warnings(machine: Machine | None = None) -> list[str]:
    """Return a warning if /dev/shm is too small for large batches of loader processes, else nothing."""
    size = (machine or describe_machine()).shm_gib
    if sys.platform != "linux" or (size is not None and size >= SMALL_SHM_GIB):
        return []
    has = "there is no /dev/shm" if size is None else f"/dev/shm has {size * 1024:.0f} MiB"
    slower = "batches of the loader `workers` that do not fit go through pipes, which is slower"
    return [f"{has}: {slower}; in a container, --shm-size=1g gives more"]


def package_versions() -> dict[str, str]:
    """Return the versions of Python and of the installed packages that can change a result."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def git_commit(folder: Path) -> str | None:
    """Return the commit of the repository that tracks this folder, as `abc1234`, or `abc1234-dirty` with changed files.

    None: there is no git, or no commit that contains the folder. An installed package lies in the environment of some
    project, whose commit says nothing about the package.
    """

    def git(*arguments: str) -> str:
        command = ["git", "-C", f"{folder}", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()

    try:
        if not git("ls-tree", "HEAD", "./"):
            return None
        return git("describe", "--always", "--dirty", "--abbrev=7", "--exclude=*")
    except (OSError, subprocess.SubprocessError):
        return None


def cpu_name(proc: Path = PROC) -> str:
    """Return the processor's model name, or its architecture if the name is unknown."""
    try:
        lines = (proc / "cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [value.strip() for key, _, value in (line.partition(":") for line in lines) if key.strip() == "model name"]
    return " ".join(names[0].split()) if names and names[0] else platform.processor() or platform.machine()


def usable_cores(proc: Path = PROC, cgroups: Path = CGROUPS) -> int:
    """Return the cores that this process can keep busy: those it is bound to, within its control group's quota."""
    quotas = limits("", "cpu.max", proc=proc, cgroups=cgroups)
    quotas += limits("cpu", "cpu.cfs_quota_us", "cpu.cfs_period_us", proc=proc, cgroups=cgroups)
    quota = min((pair[0] / pair[1] for pair in quotas if len(pair) == 2 and min(pair) > 0), default=math.inf)
    return max(1, math.floor(min(len(allowed_cores()), quota)))


class CoresOfOthers:
    """Meter of the cores that other processes used, of those that this process is bound to, since it was made."""

    def __init__(self) -> None:
        self._start = self._now()

    def __call__(self) -> float:
        """Return the mean number of cores; 0.0 where the system does not say."""
        seconds, taken = (now - start for now, start in zip(self._now(), self._start, strict=True))
        return max(0.0, taken / seconds) if seconds > 0 else 0.0

    @staticmethod
    def _now() -> tuple[float, float]:
        """Seconds of a clock, and CPU seconds of all processes but this one and its children."""
        import psutil

        process, by_core = psutil.Process(), psutil.cpu_times(percpu=True)
        counted = [by_core[core] for core in allowed_cores() if core < len(by_core)]
        used = sum(sum(getattr(times, name, 0.0) for name in WORKING) for times in counted)
        own = sum(process.cpu_times()[:4])  # user and system time, then those of children that have ended
        for child in process.children(recursive=True):
            with suppress(psutil.Error):  # it has just ended
                own += sum(child.cpu_times()[:2])
        return time.perf_counter(), used - own


def visible_gpus() -> tuple[Gpu, ...]:
    """Return the NVIDIA GPUs that CUDA_VISIBLE_DEVICES leaves to this process."""
    try:
        import pynvml

        pynvml.nvmlInit()
        try:
            handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
            uuids = [_decode(pynvml.nvmlDeviceGetUUID(handle)) for handle in handles]
            setting = os.environ.get("CUDA_VISIBLE_DEVICES")
            if setting is not None and setting.startswith("MIG-"):  # a part of a GPU; CUDA shows a process one at most
                shown = [pynvml.nvmlDeviceGetHandleByUUID(setting.partition(",")[0].strip())]
            else:
                shown = [handles[i] for i in visible_devices(uuids, setting)]
            sizes = [pynvml.nvmlDeviceGetMemoryInfo(handle).total / GIB for handle in shown]
            return tuple(Gpu(_decode(pynvml.nvmlDeviceGetName(h)), gib) for h, gib in zip(shown, sizes, strict=True))
        finally:
            pynvml.nvmlShutdown()
    except Exception:  # no library, no driver or no device: any failure means that there is no GPU
        return ()


def visible_devices(uuids: Sequence[str], setting: str | None) -> list[int]:
    """Return the devices CUDA would show, by its rules: indices or prefixes of UUIDs, up to the first invalid one."""
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


def _decode(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value  # older releases of pynvml return bytes
