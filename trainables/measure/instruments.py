"""What watches a trial while it trains: meter, stage times, trace, telemetry, memory; the metrics that they give."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

import torch

from trainables.contract import Worker
from trainables.machine.ceilings import ceilings
from trainables.machine.devices import devices_of
from trainables.machine.footprint import GIB, Footprint
from trainables.machine.processor import precision_of
from trainables.measure.drift import Levels, named
from trainables.measure.neighbours import ForeignLoad
from trainables.measure.pace import Pace
from trainables.measure.repeats import levels, yardstick_level
from trainables.measure.telemetry import Telemetry
from trainables.measure.throughput import MIN_WARMUP_STEPS, ThroughputMeter
from trainables.measure.yardstick import Yardstick
from trainables.network.flops import training_flops_per_image
from trainables.parallel import ranks
from trainables.pictures.loaders import PREFETCHED_BATCHES
from trainables.settings import Settings
from trainables.stages import STAGES, Timeline

MOST_WARMUP_STEPS = 20
PROFILED_SECONDS = 1.5
MOST_PROFILED_STEPS = 50
TIMELESS = ("learning_rate", "momentum", "weight_decay", "label_smoothing", "seed", "trace_steps")  # cost no time
TRACE_FILE = "trace.json"  # ui.perfetto.dev shows it

# How the figures of the ranks become one.
OVER_RANKS = {
    "cpu_utilization": ranks.mean_of,
    "machine_cpu_utilization": ranks.mean_of,
    "resident_gib": ranks.total,
    "loader_processes": ranks.total,
    "loader_cores": ranks.mean_of,
    "system_time_fraction": ranks.mean_of,
    "gpu_utilization": ranks.mean_of,
    "gpu_memory_gib": ranks.largest,
    "gpu_power_watts": ranks.total,
    "gpu_clock_mhz": ranks.mean_of,
    "gpu_throttled_fraction": ranks.largest,
}


class Instruments:
    """Those of one rank. The steps of a trial are, in this order: warm-up, profiled, traced if asked for, measured.

    All of them train alike; the meter has only the last. What lies between `pause` and `resume` is in no figure.
    """

    def __init__(
        self,
        settings: Settings,
        worker: Worker,
        device: torch.device,
        num_classes: int,
        steps: int | None,
        predicted_bytes: int,
        moved_bytes: int,
    ) -> None:
        """`steps`: that there will be, None: as many as it takes. A third at most is warm-up, a fifth profiled.

        `predicted_bytes`: of memory, at the peak; `moved_bytes`: read and written by a step on all devices.
        """
        self._predicted_bytes, self._moved_bytes = predicted_bytes, moved_bytes
        self._settings, self._worker, self._device = settings, worker, device
        self._ceilings = ceilings(torch.get_num_threads(), device)
        self._teraflops_per_image = training_flops_per_image(settings, num_classes) / 1e12
        cores = _own_cores(worker)
        self._levels, self._num_cores = Levels(device, torch.get_num_threads()), len(cores)
        self.timeline = Timeline(device)
        self.meter = self._meter(cores, steps)
        self._asides: list[_Aside] = []
        if steps is None or steps >= 10:
            most = MOST_PROFILED_STEPS if steps is None else min(MOST_PROFILED_STEPS, steps // 5)
            self._asides.append(_Profiled(self.timeline, most, fill=device.type == "cuda"))
        if settings.trace_steps and worker.rank == 0:
            self._asides.append(_Traced(worker.folder / TRACE_FILE, settings.trace_steps))
        devices = devices_of(settings, device)
        self._num_devices = worker.world_size * len(devices)
        self._telemetry = Telemetry(devices, cores)
        self._telemetry.start()
        self._telemetry.pause()
        self._footprint = Footprint(devices)
        self._images = 0
        self._watching: _Aside | ThroughputMeter = self.meter

    def resume(self) -> None:
        """Training begins, or goes on."""
        self._telemetry.resume()
        self._watching.resume()

    def pause(self) -> None:
        """What follows is not training."""
        self._watching.pause()
        self._telemetry.pause()

    def step(self) -> None:
        """A step of the whole batch is over, as far as the host is concerned."""
        self._images += self._settings.batch_size
        if self._watching is self.meter:
            self.meter.step(self._settings.batch_size)
            over = bool(self._asides) and not self.meter.warming_up
        else:
            over = self._asides[0].step()
        if over:
            self._watching.pause()
            self._watching = self._next()
            self._watching.resume()

    def close(self) -> None:
        """No more steps."""
        self._watching.pause()
        self._telemetry.stop()
        self._learn()

    def _next(self) -> _Aside | ThroughputMeter:
        """What watches the steps after warm-up, after those profiled, after those traced."""
        if self._watching is not self.meter:
            self._asides.pop(0)
        return self._asides[0] if self._asides else self.meter

    def metrics(self) -> dict[str, float]:
        """Of the whole job until now. All ranks ask at the same time; each gets what can be known."""
        rates = self._rates()
        known = {**rates, **self._stages(), **self._telemetry_means(), **self._memory()}
        known |= {
            "utilization_imbalance": ranks.imbalance(
                self._telemetry.utilizations(), self._worker.world_size, self._device
            ),
            "memory_imbalance": ranks.imbalance(self._footprint.peaks_gib(), self._worker.world_size, self._device),
        }
        if "images_per_second" in rates:
            known |= self._work(rates["images_per_second"])
        return {name: value for name, value in known.items() if not math.isnan(value)}

    def settled(self) -> bool:
        """Whether measuring on is not worth it."""
        return not self._asides and self.meter.settled()

    @property
    def windows(self) -> int:
        """How many whole ones were measured."""
        return len(self.meter.windows)

    @property
    def quiet_windows(self) -> int:
        """How many of them were not disturbed."""
        return len(self.meter.quiet_windows)

    def _meter(self, cores: frozenset[int], steps: int | None) -> ThroughputMeter:
        settings = self._settings
        ahead = PREFETCHED_BATCHES * settings.num_workers if settings.loader == "workers" else 0
        fewest = MIN_WARMUP_STEPS + ahead
        most = MOST_WARMUP_STEPS + ahead
        return ThroughputMeter(
            min_warmup_steps=fewest,
            max_warmup_steps=most if steps is None else min(most, steps // 3),
            synchronize=self._synchronize,
            foreign=ForeignLoad(cores, self._device),
            pace=Pace() if self._device.type == "cpu" else lambda: 1.0,  # a GPU's clocks are read
            # The step of one rank would be time that the others wait.
            yardstick=Yardstick() if self._device.type == "cpu" and self._worker.world_size == 1 else None,
            drift=self._levels.drift(),
            cores=len(cores),
        )

    def _learn(self) -> None:
        """What this trial tells about the machine's drift, for the next one."""
        if self._worker.rank == 0:
            settings = {name: value for name, value in asdict(self._settings).items() if name not in TIMELESS}
            work = named({**settings, "ranks": self._worker.world_size, "data": self._worker.data.name})
            windows, cores = self.meter.windows, self._num_cores
            self._levels.learn({work: levels(windows, cores), "yardstick": yardstick_level(windows, cores)})

    def _rates(self) -> dict[str, float]:
        """By this rank's clock: the ranks keep step. Nothing if all steps so far were warm-up or profiled."""
        try:
            result = self.meter.result()
        except ValueError:
            return {}
        interval = {"images_per_second_low": result.low, "images_per_second_high": result.high}
        return {
            "images_per_second": result.images_per_second,
            **{name: value for name, value in interval.items() if value is not None},
            "throughput_windows": float(result.windows),
            "throughput_images": float(result.images),
            "throughput_seconds": result.seconds,
            "warmup_steps": float(result.warmup_steps),
            "disturbed_windows": float(result.disturbed_windows),
            "disturbed": float(result.disturbed),
        }

    def _stages(self) -> dict[str, float]:
        """Means over the ranks; a stage that this strategy and device do not have is zero."""
        steps = self.timeline.steps
        (fewest,) = ranks.smallest([steps], self._worker.world_size, self._device)
        if not fewest:
            return {}
        mine = self.timeline.seconds_per_step()
        seconds = ranks.mean_of([mine.get(s, 0.0) for s in STAGES], self._worker.world_size, self._device)
        named = {f"{stage}_seconds": value for stage, value in zip(STAGES, seconds, strict=True)}
        return {**named, "step_seconds": math.fsum(seconds), "profiled_steps": fewest}

    def _telemetry_means(self) -> dict[str, float]:
        mine: Mapping[str, float] = self._telemetry.means(self._images)
        world_size, device = self._worker.world_size, self._device
        known = {name: over([mine.get(name, math.nan)], world_size, device)[0] for name, over in OVER_RANKS.items()}
        # each rank divided all images by the joules of its own device
        (joules,) = ranks.total([1 / mine.get("images_per_joule", math.nan)], world_size, device)
        return {**known, "images_per_joule": 1 / joules}

    def _memory(self) -> dict[str, float]:
        """The trial's peak: of resident memory over its processes, or of the GPU that is fullest."""
        peak, available = (
            math.nan if x is None else x for x in (self._footprint.peak_gib(), self._footprint.available_gib())
        )
        world_size = self._worker.world_size
        if self._device.type == "cuda":
            peak, fraction = ranks.largest([peak, peak / available], world_size, self._device)
        else:
            (peak,) = ranks.total([peak], world_size, self._device)
            fraction = peak / available
        predicted = self._predicted_bytes / GIB
        return {"peak_memory_gib": peak, "peak_memory_fraction": fraction, "predicted_memory_gib": predicted}

    def _work(self, images_per_second: float) -> dict[str, float]:
        """Counted operations and bytes per second, beside what all ranks together could do at most."""
        highest, devices = self._ceilings, self._num_devices
        achieved = images_per_second * self._teraflops_per_image
        moved = images_per_second / self._settings.batch_size * self._moved_bytes / GIB
        known = {
            f"ceiling_{name}_teraflops_per_second": devices * highest.teraflops_per_second(name)
            for name in highest.matrix_teraflops_per_second
        }
        known |= {
            "teraflops_per_second": achieved,
            "memory_gib_per_second": moved,
            "fraction_of_bandwidth": moved / (devices * highest.memory_gib_per_second),
        }
        precision = precision_of(self._settings.precision, self._device.type)
        if precision in highest.matrix_teraflops_per_second:
            known["fraction_of_ceiling"] = achieved / (devices * highest.teraflops_per_second(precision))
            known["fraction_of_matrix_rate"] = achieved / (devices * highest.matrix_teraflops_per_second[precision])
        return known

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


class _Aside(Protocol):
    """Some steps that train like all others, but under a magnifying glass that would slow the measured ones."""

    def resume(self) -> None:
        """Training begins, or goes on."""
        ...

    def step(self) -> bool:
        """A step is over; whether it was the last one wanted."""
        ...

    def pause(self) -> None:
        """Training pauses, or this is over."""
        ...


class _Profiled:
    """Stage times. On a GPU the step before the first one only fills the pipeline, which the meter has drained."""

    def __init__(self, timeline: Timeline, most_steps: int, *, fill: bool) -> None:
        self._timeline, self._steps_left, self._fill = timeline, most_steps, fill
        self._end = math.inf

    def resume(self) -> None:
        if not self._fill:
            self._start()

    def step(self) -> bool:
        self._timeline.step()
        self._steps_left -= 1
        if not self._timeline.on:
            self._start()
        return time.perf_counter() >= self._end or self._steps_left <= 0

    def pause(self) -> None:
        self._timeline.stop()

    def _start(self) -> None:
        self._timeline.start()
        self._end = min(self._end, time.perf_counter() + PROFILED_SECONDS)


class _Traced:
    """Every operator of some steps, by `torch.profiler`, in a file."""

    def __init__(self, path: Path, steps: int) -> None:
        self._path, self._steps_left = path, steps
        self._profiler: torch.profiler.profile | None = None

    def resume(self) -> None:
        activities = torch.profiler.supported_activities()  # type: ignore[no-untyped-call]
        self._profiler = torch.profiler.profile(activities=activities, acc_events=True)  # else PyTorch 2.11 warns
        self._profiler.start()

    def step(self) -> bool:
        self._steps_left -= 1
        return self._steps_left <= 0

    def pause(self) -> None:
        if self._profiler is not None:
            self._profiler.stop()
            self._profiler.export_chrome_trace(f"{self._path}")
            self._profiler = None


def _own_cores(worker: Worker) -> frozenset[int]:
    """Cores that nobody else should use; none where this process is not bound to as few as it was given."""
    cores = frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset[int]()
    return cores if len(cores) <= worker.resources.cpus else frozenset()
