"""Telemetry of a trial's processes and devices: utilisation, memory, power, clocks and energy, where readable."""

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

from trainables.machine.nvml import Gpu
from trainables.machine.peak_memory import GIB, private_bytes, resident_bytes
from trainables.measure.interference import children_seconds, core_ticks
from trainables.parallel import ranks

POWERCAP = Path("/sys/class/powercap")
SAMPLE_SECONDS = 0.5  # a sample costs 0.05 ms on the CPU: 0.01% of a core
LAG_SECONDS = 1.0  # NVML's utilisation and power are means over the last second
SHORT_PAUSE_SECONDS = 0.1  # changes those means little, for instance an evaluation between short epochs
LAGGING = ("gpu_utilization", "gpu_power_watts")

# Reduction of each metric over the GPUs of all processes.
OVER_GPUS: dict[str, ranks.Reduction] = {
    "gpu_utilization": "mean",
    "gpu_memory_gib": "max",
    "gpu_power_watts": "sum",
    "gpu_clock_mhz": "mean",
    "gpu_throttled_fraction": "max",
}
_REDUCED: dict[ranks.Reduction, Callable[[Iterable[float]], float]] = {"mean": fmean, "max": max, "sum": sum}

_Counters = dict[str, float]  # values that only increase, by name


class Telemetry:
    """Sample this process, its `multiprocessing` children and its devices in a thread, from `start` or `resume` on.

    Means exclude pauses, and so those of NVML the second after a longer one. A sensor that cannot be read is absent
    from them. The power of GPUs is the energy that they consumed, where that is readable, by the time. `on_sample` is
    called every SAMPLE_SECONDS, in pauses too.
    """

    def __init__(
        self, devices: Sequence[torch.device], cores: Collection[int], on_sample: Callable[[], object] = lambda: None
    ) -> None:
        self._num_cores, self._on_sample = len(cores), on_sample
        self._gpus = [Gpu(device) for device in devices if device.type == "cuda"]
        self._own = _Means()
        self._of_gpus = [_Means() for _ in self._gpus]
        self._grown: _Counters = defaultdict(float)
        self._before: _Counters | None = None  # None: paused
        self._paused_at = self._settled_at = -math.inf
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="telemetry", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self.resume()
        self._thread.start()

    def stop(self) -> None:
        """End the thread; the means remain."""
        self.pause()
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def resume(self) -> None:
        """Count from now on."""
        with self._lock:
            if self._before is None:
                self._before = self._counters()
                if time.perf_counter() > self._paused_at + SHORT_PAUSE_SECONDS:
                    self._settled_at = time.perf_counter() + LAG_SECONDS

    def pause(self) -> None:
        """Stop counting until `resume`."""
        with self._lock:
            if self._before is not None:
                self._count()
                self._before, self._paused_at = None, time.perf_counter()

    def means(self, units: float) -> dict[str, float]:
        """Return the metrics so far, by name; `units` is what this process's devices trained on in that time.

        Energy is that of the GPUs in a trial with a GPU, otherwise that of all CPU packages of the machine.
        """
        with self._lock:
            self._count()
            means = self._own.all()
            by_gpu = [gpu.all() for gpu in self._of_gpus]
        for name, reduction in OVER_GPUS.items():
            if known := [gpu[name] for gpu in by_gpu if name in gpu]:
                means[name] = _REDUCED[reduction](known)
        grown = self._grown
        if "resident_gib" in means:
            # reading private memory takes 10 ms: too long for a sample
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
            means["units_per_joule"] = units / grown["joules"]
            if self._gpus:
                means["gpu_power_watts"] = grown["joules"] / grown["seconds"]
        return means

    def utilizations(self) -> list[float]:
        """Return the utilisation of each GPU, or of this process's cores; empty: not readable."""
        if not self._gpus:
            return [value for name, value in self.means(0).items() if name == "cpu_utilization"]
        with self._lock:
            by_gpu = [gpu.all() for gpu in self._of_gpus]
        return [gpu["gpu_utilization"] for gpu in by_gpu if "gpu_utilization" in gpu]

    def _watch(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            self._on_sample()
            with self._lock:
                if self._before is None:
                    continue
                self._count()
                self._own.add(self._sample())
                lagging = LAGGING if time.perf_counter() < self._settled_at else ()
                for gpu, means in zip(self._gpus, self._of_gpus, strict=True):
                    means.add({name: value for name, value in gpu.sample().items() if name not in lagging})

    def _count(self) -> None:
        """Add the growth of all counters since the last call; an energy counter that was reset adds nothing."""
        if self._before is None:
            return
        now = self._counters()
        for name in now.keys() & self._before.keys():
            self._grown[name] += max(0.0, now[name] - self._before[name])
        self._before = now

    def _sample(self) -> dict[str, float | None]:
        return {
            "resident_gib": resident_bytes() / GIB,
            "loader_processes": float(len(multiprocessing.active_children())),
        }

    def _counters(self) -> _Counters:
        by_gpu = [gpu.joules() for gpu in self._gpus]
        known = [joules for joules in by_gpu if joules is not None]
        joules = _package_joules() if not by_gpu else math.fsum(known) if len(known) == len(by_gpu) else None
        counters = {
            "seconds": time.perf_counter(),
            "process_seconds": time.process_time(),
            "system_seconds": os.times().system,
            "children_seconds": children_seconds(),
            **_machine_ticks(),
        }
        return counters if joules is None else {**counters, "joules": joules}


class _Means:
    """Means of samples, by name; unreadable values are skipped."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = defaultdict(float)
        self._samples: dict[str, int] = defaultdict(int)

    def add(self, sample: dict[str, float | None]) -> None:
        for name, value in sample.items():
            if value is not None:
                self._sums[name] += value
                self._samples[name] += 1

    def all(self) -> dict[str, float]:
        return {name: total / self._samples[name] for name, total in self._sums.items()}


def _machine_ticks() -> _Counters:
    if not (found := core_ticks({"cpu"})):  # of all cores
        return {}
    ticks = found[0][:8]
    return {"machine_ticks": sum(ticks), "machine_busy_ticks": sum(ticks) - sum(ticks[3:5])}


def _package_joules() -> float | None:
    """Energy that the CPU packages consumed, by RAPL; None: not available or not permitted."""
    joules = []
    for package in POWERCAP.glob("intel-rapl:?"):
        with contextlib.suppress(OSError, ValueError):
            if (package / "name").read_text().startswith("package"):  # psys of a laptop contains the package
                joules.append(int((package / "energy_uj").read_text()) / 1e6)
    return sum(joules) if joules else None
