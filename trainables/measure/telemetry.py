"""What a trial's processes and devices do meanwhile: utilisation, memory, power, clocks, energy; where they tell."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from statistics import fmean

import torch

from trainables.machine.footprint import GIB, private_bytes
from trainables.machine.nvml import Gpu
from trainables.measure.neighbours import children_seconds, core_ticks

PROC = Path("/proc")
POWERCAP = Path("/sys/class/powercap")
SAMPLE_SECONDS = 0.5  # a sample costs 0.05 ms on the CPU: 0.01% of a core

# How the figures of the process's GPUs become one.
OVER_GPUS: dict[str, Callable[[Iterable[float]], float]] = {
    "gpu_utilization": fmean,
    "gpu_memory_gib": max,
    "gpu_power_watts": sum,
    "gpu_clock_mhz": fmean,
    "gpu_throttled_fraction": max,
}

_Counters = dict[str, float]  # what counts up, by name
_Sample = dict[str, float | None]


class Telemetry:
    """Samples this process, its `multiprocessing` children and its devices in a thread, from `start` or `resume` on.

    Means are over the time that is not paused. A sensor that cannot be read is absent from them.
    """

    def __init__(self, devices: Sequence[torch.device], cores: Collection[int]) -> None:
        self._num_cores = len(cores)
        self._gpus = [Gpu(device) for device in devices if device.type == "cuda"]
        self._own = _Means()
        self._of_gpus = [_Means() for _ in self._gpus]
        self._grown: _Counters = defaultdict(float)
        self._before: _Counters | None = None  # None: paused
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="telemetry", daemon=True)

    def start(self) -> None:
        """Sample from now on."""
        self.resume()
        self._thread.start()

    def stop(self) -> None:
        """For good; the means stay."""
        self.pause()
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def resume(self) -> None:
        """What follows counts."""
        with self._lock:
            self._before = self._before or self._counters()

    def pause(self) -> None:
        """What follows does not count."""
        with self._lock:
            self._count()
            self._before = None

    def means(self, images: int) -> dict[str, float]:
        """Metrics so far, by name; `images` is what this process's devices trained on meanwhile.

        Energy is that of the GPUs in a trial with a GPU, and otherwise that of all CPU packages of the machine.
        """
        with self._lock:
            self._count()
            means = self._own.all()
            of_gpus = [gpu.all() for gpu in self._of_gpus]
        for name, over in OVER_GPUS.items():
            if known := [gpu[name] for gpu in of_gpus if name in gpu]:
                means[name] = over(known)
        grown = self._grown
        if "resident_gib" in means:
            # takes 10 ms to find out: too long for a sample
            means["resident_gib"] += sum(private_bytes(child.pid) for child in multiprocessing.active_children()) / GIB
        if grown["seconds"] > 0:
            means["loader_cores"] = grown["children_seconds"] / grown["seconds"]
            if self._num_cores:
                own_seconds = grown["process_seconds"] + grown["children_seconds"]
                means["cpu_utilization"] = own_seconds / grown["seconds"] / self._num_cores
        if grown["process_seconds"] > 0:
            means["system_time_fraction"] = min(1.0, grown["system_seconds"] / grown["process_seconds"])
        if grown["machine_ticks"] > 0:
            means["machine_cpu_utilization"] = grown["machine_busy_ticks"] / grown["machine_ticks"]
        if grown["joules"] > 0:
            means["images_per_joule"] = images / grown["joules"]
        return means

    def utilizations(self) -> list[float]:
        """Of each GPU, or of this process's cores; empty: cannot be read."""
        if self._gpus:
            with self._lock:
                of_gpus = [gpu.all() for gpu in self._of_gpus]
            return [gpu["gpu_utilization"] for gpu in of_gpus if "gpu_utilization" in gpu]
        return [value for name, value in self.means(0).items() if name == "cpu_utilization"]

    def _watch(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            with self._lock:
                if self._before is None:
                    continue
                self._count()
                self._own.add(self._sample())
                for gpu, means in zip(self._gpus, self._of_gpus, strict=True):
                    means.add(gpu.sample())

    def _count(self) -> None:
        """Add what has grown since this was last done. The counters of energy start anew at times: never below."""
        if self._before is None:
            return
        now = self._counters()
        for name in now.keys() & self._before.keys():
            self._grown[name] += max(0.0, now[name] - self._before[name])
        self._before = now

    def _sample(self) -> _Sample:
        return {
            "resident_gib": _resident_gib(),
            "loader_processes": float(len(multiprocessing.active_children())),
        }

    def _counters(self) -> _Counters:
        joules = _total(gpu.joules() for gpu in self._gpus) if self._gpus else _package_joules()
        counters = {
            "seconds": time.perf_counter(),
            "process_seconds": time.process_time(),
            "system_seconds": os.times().system,
            "children_seconds": children_seconds(),
            **_machine_ticks(),
        }
        return counters if joules is None else {**counters, "joules": joules}


class _Means:
    """Of what was sampled, by name; what could not be read does not count."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = defaultdict(float)
        self._samples: dict[str, int] = defaultdict(int)

    def add(self, sample: _Sample) -> None:
        for name, value in sample.items():
            if value is not None:
                self._sums[name] += value
                self._samples[name] += 1

    def all(self) -> dict[str, float]:
        return {name: total / self._samples[name] for name, total in self._sums.items()}


def _total(values: Iterable[float | None]) -> float | None:
    """None: not all of them are known."""
    known = list(values)
    return None if None in known else math.fsum(value for value in known if value is not None)


def _resident_gib() -> float | None:
    try:
        return int(PROC.joinpath("self", "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / GIB
    except (OSError, ValueError):
        return None


def _machine_ticks() -> _Counters:
    if not (found := core_ticks({"cpu"})):  # of all cores
        return {}
    ticks = found[0][:8]
    return {"machine_ticks": sum(ticks), "machine_busy_ticks": sum(ticks) - sum(ticks[3:5])}


def _package_joules() -> float | None:
    """Energy that the CPU packages have taken, by RAPL; None: there is none here, or not for us."""
    joules = []
    for package in POWERCAP.glob("intel-rapl:?"):
        with contextlib.suppress(OSError, ValueError):
            joules.append(int((package / "energy_uj").read_text()) / 1e6)
    return sum(joules) if joules else None
