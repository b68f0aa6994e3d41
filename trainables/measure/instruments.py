"""Instruments of a trial while it trains: meter, stage times, trace, telemetry and memory; the metrics they give."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import torch

from trainables.contract import STAGES, Worker
from trainables.machine.ceilings import ceilings
from trainables.machine.devices import devices_of, synchronize
from trainables.machine.peak_memory import GIB, PeakMemory
from trainables.machine.processor import precision_of
from trainables.measure.core_speed import CoreSpeed
from trainables.measure.drift import RateHistory, workload_id
from trainables.measure.interference import InterferenceClock
from trainables.measure.reference_step import ReferenceStep
from trainables.measure.repeats import rates_by_part, reference_rate
from trainables.measure.telemetry import OVER_GPUS, Telemetry
from trainables.measure.throughput import MIN_WARMUP_STEPS, ThroughputMeter
from trainables.parallel import ranks
from trainables.process_limits import allowed_cores
from trainables.samples.worker_batches import PREFETCHED_BATCHES
from trainables.settings import Settings
from trainables.stages import Timeline
from trainables.strategy_table import STRATEGIES, captures

MAX_WARMUP_STEPS = 20
PROFILED_SECONDS = 1.5
MAX_PROFILED_STEPS = 50
TRACE_FILE = "trace.json"  # the next ones are trace_2.json and so on; opens in ui.perfetto.dev

# Reduction of each metric over the ranks.
OVER_RANKS: dict[str, ranks.Reduction] = {
    "cpu_utilization": "mean",
    "machine_cpu_utilization": "mean",
    "resident_gib": "sum",
    "loader_processes": "sum",
    "loader_cores": "mean",
    "system_time_fraction": "mean",
    **OVER_GPUS,
}


@dataclass(frozen=True)
class StepWork:
    """Work of a training step of the whole job; None: it could not be counted."""

    unit: str  # such as images
    units: float
    flops: int | None
    moved_bytes: int | None  # read and written, on all devices
    peak_bytes: int | None  # predicted, of memory


class Instruments:
    """Instruments of one rank. Its steps are, in this order: warm-up, profiled, traced if requested, measured.

    All of them train alike; the meter counts only the measured ones. The time between `pause` and `resume` is excluded
    from all metrics.
    """

    def __init__(
        self,
        settings: Settings,
        worker: Worker,
        device: torch.device,
        steps: int | None,
        work: StepWork,
    ) -> None:
        """`steps`: of the whole training, None: unlimited. At most a third of them is warm-up, a fifth is profiled."""
        self._work = work
        self._settings, self._worker, self._device = settings, worker, device
        self._ceilings = ceilings(torch.get_num_threads(), device)
        cores = _own_cores(worker)
        self._rate_history, self._num_cores = RateHistory(device, torch.get_num_threads()), len(cores)
        self.timeline = Timeline(device)
        self.meter = self._meter(cores, steps)
        self._recorders: list[_Recorder] = []  # of the steps between warm-up and the measured ones
        if steps is None or steps >= 10:
            most = MAX_PROFILED_STEPS if steps is None else min(MAX_PROFILED_STEPS, steps // 5)
            self._recorders.append(_Profile(self.timeline, most, fill=device.type == "cuda"))
        if settings.trace_steps and worker.rank == 0:
            self._recorders.append(_Trace(worker.folder, settings.trace_steps))
        devices = devices_of(settings, device)
        self._num_devices = worker.world_size * len(devices)
        self._peak_memory = PeakMemory(devices)
        self._telemetry = Telemetry(devices, cores, self._peak_memory.sample)
        self._telemetry.start()
        self._telemetry.pause()
        self._units = 0.0
        self._active: _Recorder | ThroughputMeter = self.meter

    def resume(self) -> None:
        """Start measuring, at the beginning or after a pause."""
        self._telemetry.resume()
        self._active.resume()

    def pause(self) -> None:
        """Stop measuring until `resume`."""
        self._active.pause()
        self._telemetry.pause()

    def step(self, units: float | None = None) -> None:
        """Count a step that the host has finished; `units` of the whole job, by default those of the work."""
        units = self._work.units if units is None else units
        self._units += units
        if isinstance(self._active, ThroughputMeter):
            self._active.step(units)
            if self._active.warming_up or not self._recorders:
                return
        elif self._active.step():
            self._recorders.pop(0)
        else:
            return
        self._active.pause()
        self._active = self._recorders[0] if self._recorders else self.meter
        self._active.resume()

    def close(self) -> None:
        """End measuring, and record this trial's rates for the estimate of the machine's drift."""
        self._active.pause()
        self._telemetry.stop()
        if self._worker.rank == 0:
            settings, worker = self._settings, self._worker
            trained = {"workload": settings.workload, "source": settings.source, "data": asdict(worker.data)}
            workload = workload_id({**settings.that_affect_rates(), **trained, "ranks": worker.world_size})
            windows, cores = self.meter.windows, self._num_cores
            rates = {workload: rates_by_part(windows, cores), "reference_step": reference_rate(windows, cores)}
            self._rate_history.record(rates)

    def metrics(self) -> dict[str, float]:
        """Return the metrics of the whole job so far. All ranks call it together; unknown ones are left out."""
        world_size, device = self._worker.world_size, self._device
        rates = self._rates()
        known = {**rates, **self._stages(), **self._telemetry_means(), **self._memory()}
        known |= {
            "utilization_imbalance": ranks.imbalance(self._telemetry.utilizations(), world_size, device),
            "memory_imbalance": ranks.imbalance(self._peak_memory.peaks_gib(), world_size, device),
        }
        if (rate := rates.get(f"{self._work.unit}_per_second")) is not None:
            known |= self._achieved(rate / self._work.units)
        return {name: value for name, value in known.items() if not math.isnan(value)}

    @property
    def units_per_step(self) -> float:
        """Units of the whole job in a step."""
        return self._work.units

    def settled(self) -> bool:
        """Return True if further measuring would hardly improve the rate."""
        return not self._recorders and self.meter.settled()

    def _meter(self, cores: frozenset[int], steps: int | None) -> ThroughputMeter:
        on_cpu = self._device.type == "cpu"
        fewest, most = warmup_steps(self._settings, self._device.type)
        return ThroughputMeter(
            min_warmup_steps=fewest,
            max_warmup_steps=most if steps is None else min(most, steps // 3),
            synchronize=partial(synchronize, self._device),
            interference=InterferenceClock(cores, self._device),
            slowdown=CoreSpeed() if on_cpu else lambda: 1.0,  # a GPU's clocks can be read
            # Several ranks have no reference step, because the others would wait for it.
            reference_step=ReferenceStep() if on_cpu and self._worker.world_size == 1 else None,
            drift=self._rate_history.drift(),
            cores=len(cores),
        )

    def _rates(self) -> dict[str, float]:
        """Rates by this rank's clock, because the ranks keep step; empty while no step was measured."""
        try:
            result = self.meter.result()
        except ValueError:
            return {}
        unit = self._work.unit
        interval = {f"{unit}_per_second_low": result.low, f"{unit}_per_second_high": result.high}
        return {
            f"{unit}_per_second": result.units_per_second,
            **{name: value for name, value in interval.items() if value is not None},
            "throughput_windows": float(result.windows),
            f"throughput_{unit}": float(result.units),
            "throughput_seconds": result.seconds,
            "warmup_steps": float(result.warmup_steps),
            "contended_windows": float(result.contended_windows),
            "contended": float(result.contended),
        }

    def _stages(self) -> dict[str, float]:
        """Mean stage times over the ranks; zero for a stage that this strategy and device do not have."""
        steps = self.timeline.steps
        (fewest,) = ranks.reduced([steps], "min", self._worker.world_size, self._device)
        if not fewest:
            return {}
        mine = self.timeline.seconds_per_step()
        seconds = ranks.reduced([mine.get(s, 0.0) for s in STAGES], "mean", self._worker.world_size, self._device)
        by_stage = {f"{stage}_seconds": value for stage, value in zip(STAGES, seconds, strict=True)}
        known = {**by_stage, "step_seconds": math.fsum(seconds), "profiled_steps": fewest}
        if (host := self.timeline.host_seconds_per_step()) is not None:
            known["host_seconds"] = ranks.reduced([host], "mean", self._worker.world_size, self._device)[0]
        return known

    def _telemetry_means(self) -> dict[str, float]:
        mine: Mapping[str, float] = self._telemetry.means(self._units)
        world_size, device = self._worker.world_size, self._device
        known: dict[str, float] = {}
        for reduction in dict.fromkeys(OVER_RANKS.values()):
            names = [name for name, its in OVER_RANKS.items() if its == reduction]
            values = [mine.get(name, math.nan) for name in names]
            known |= zip(names, ranks.reduced(values, reduction, world_size, device), strict=True)
        # each rank divided all units by the joules of its own GPUs, or by those of the node's processors
        counted = device.type == "cuda" or ranks.local_rank(self._worker.rank) == 0
        joules = 1 / mine.get("units_per_joule", math.nan) if counted else 0.0
        (joules,) = ranks.reduced([joules], "sum", world_size, device)
        return {**known, f"{self._work.unit}_per_joule": 1 / (joules or math.nan)}

    def _memory(self) -> dict[str, float]:
        """Peak memory of the trial: resident, summed over its processes, or of the fullest GPU."""
        watched, world_size = self._peak_memory, self._worker.world_size
        peak, reserved, available = watched.peak_gib(), watched.peak_reserved_gib(), watched.available_gib()
        if reserved is None:
            (peak,) = ranks.reduced([peak], "sum", world_size, self._device)
            known = {"peak_memory_gib": peak, "peak_memory_fraction": peak / available}
        else:
            mine = [peak, reserved, reserved / available]
            names = "peak_memory_gib", "peak_reserved_gib", "peak_memory_fraction"
            known = dict(zip(names, ranks.reduced(mine, "max", world_size, self._device), strict=True))
        predicted = math.nan if self._work.peak_bytes is None else self._work.peak_bytes / GIB
        return {**known, "predicted_memory_gib": predicted}

    def _achieved(self, steps_per_second: float) -> dict[str, float]:
        """Operations and bytes per second, compared with the ceilings of all ranks together."""
        highest, devices, work = self._ceilings, self._num_devices, self._work
        known = {
            f"ceiling_{name}_teraflops_per_second": devices * highest.teraflops_per_second(name)
            for name in highest.matrix_teraflops_per_second
        }
        if work.moved_bytes is not None:
            moved = steps_per_second * work.moved_bytes / GIB
            known["memory_gib_per_second"] = moved
            known["fraction_of_bandwidth"] = moved / (devices * highest.memory_gib_per_second)
        if work.flops is None:
            return known
        known["teraflops_per_second"] = achieved = steps_per_second * work.flops / 1e12
        precision = precision_of(self._settings.precision, self._device.type)
        if precision in highest.matrix_teraflops_per_second:
            known["fraction_of_ceiling"] = achieved / (devices * highest.teraflops_per_second(precision))
            known["fraction_of_matrix_rate"] = achieved / (devices * highest.matrix_teraflops_per_second[precision])
        return known


def warmup_steps(settings: Settings, device_type: str) -> tuple[int, int]:
    """Return the fewest and the most steps of warm-up: those with prefetched batches, and the capture of the step."""
    ahead = PREFETCHED_BATCHES * settings.loader_processes
    fewest = MIN_WARMUP_STEPS + ahead
    if captures(settings, device_type):
        fewest = max(fewest, STRATEGIES[settings.strategy].eager_steps + 1)
    return fewest, MAX_WARMUP_STEPS + ahead


class _Recorder(Protocol):
    """Recorder of some training steps in more detail, which would slow the measured steps."""

    def resume(self) -> None: ...

    def step(self) -> bool:
        """Count a step; whether it was the last one."""
        ...

    def pause(self) -> None: ...


class _Profile:
    """Stage times. On a GPU one step comes before the first, to refill the pipeline that the meter has drained."""

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


class _Trace:
    """Files with each operator of some steps, recorded by `torch.profiler`; a pause begins a new file."""

    def __init__(self, folder: Path, steps: int) -> None:
        self._folder, self._steps_left = folder, steps
        self._steps, self._files = 0, 0  # steps since the last pause
        self._profiler: torch.profiler.profile | None = None

    def resume(self) -> None:
        activities = torch.profiler.supported_activities()  # type: ignore[no-untyped-call]
        self._profiler = torch.profiler.profile(activities=activities, acc_events=True)  # else PyTorch 2.11 warns
        self._profiler.start()

    def step(self) -> bool:
        self._steps += 1
        self._steps_left -= 1
        return self._steps_left <= 0

    def pause(self) -> None:
        if self._profiler is None:
            return
        self._profiler.stop()
        if self._steps:
            self._files += 1
            name = TRACE_FILE if self._files == 1 else f"trace_{self._files}.json"
            self._profiler.export_chrome_trace(f"{self._folder / name}")
        self._profiler, self._steps = None, 0


def _own_cores(worker: Worker) -> frozenset[int]:
    """Cores reserved for this process; empty if it is not bound to as few as it was given."""
    cores = allowed_cores()
    return cores if len(cores) <= worker.resources.cpus else frozenset()
