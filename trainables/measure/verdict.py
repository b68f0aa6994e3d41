"""What bounds a trial, and which one setting would make it faster by how much: from its metrics alone, without torch.

A step is load + transfer + forward + backward + communicate + update. Each advice is a new sum of these, with one of
them changed as the constants below say; those were measured on machines without a GPU (results/LOG.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from trainables.contract import Advice, Bound, Resources, Verdict
from trainables.machine.processor import precision_of
from trainables.parallel.layouts import cores_of
from trainables.settings import Settings

CLOCK_SECONDS = 1e-9  # no clock tells less
MIN_GAIN = 1.03  # less is a tie
MOST_MEMORY = 0.9  # of what there is, that a larger batch may take
NUM_WORKERS = (1, 2, 4, 8, 16, 32)
BATCH_FACTORS = (2, 4, 8)

GATHER_SECONDS = 7e-6  # of a core, for a picture together with its batch
SHARED_CORES = 2.4  # core-seconds that training loses by each that loader processes take of the same cores
MOST_SHARED = 0.6  # of forward and backward beside them, which is what it loses at most
PINNED_COPY = 0.5  # of the time of a copy from memory that is not pinned
MORE_THREADS = 0.89  # of what they should bring is what more threads do
CHANNELS_LAST = 1.15  # times as fast are forward and backward on a CPU
MOST_BY_16_BITS = {"library": 2.2}  # times, on a CPU: its kernels wait for memory where the ceilings would allow more
FEW_PRODUCTS = {"bf16": 0.5, "fp32": 0.35}  # times the width: what forward and backward gain by conv_kernel auto
# Times the update: what a step does with weights whatever its batch (update, conversion and rearrangement, reading for
# each product, writing of gradients); and what its operators cost beside, whatever they work on.
ON_WEIGHTS = {"fp32": 6.0, "bf16": 4.0}
ON_WEIGHTS_BY_BYTES = 1.5  # as foresight/traffic.py counts them, where nothing was measured: library in bf16, GPUs
OPERATORS_SECONDS = 0.008
MOST_FOR_ANY_BATCH = 0.75  # of forward and backward
MEMORY_BOUND = 0.4  # of memory's rate, from which on training can be bound by it


@dataclass(frozen=True)
class _Step:
    """One step of a trial, in seconds; `compute` is forward and backward."""

    settings: Settings
    metrics: Mapping[str, float]
    cores: int  # of each process
    gpus: int
    load: float
    transfer: float
    compute: float
    communicate: float
    update: float

    @property
    def total(self) -> float:
        return self.load + self.transfer + self.compute + self.communicate + self.update

    @property
    def busy(self) -> float:
        """All but waiting for data."""
        return self.total - self.load

    def gain(self, seconds: float) -> float:
        """By a step that takes so long instead."""
        return self.total / max(seconds, self.total / 1000)  # nothing is free

    def known(self, name: str) -> float | None:
        value = self.metrics.get(name, math.nan)
        return value if math.isfinite(value) else None


def explain(settings: Settings, metrics: Mapping[str, float], resources: Resources) -> Verdict | None:
    """What takes the largest share of a step, and what would help, best first; None: no step was profiled.

    `metrics` as `vgg19_cifar10.METRICS` names them; what needs a metric that is absent is not said.
    """
    precision = precision_of(settings.precision, "cuda" if resources.gpus else "cpu")
    step = _step(replace(settings, precision=precision), metrics, resources)
    if step is None:
        return None
    shares: dict[Bound, float] = {
        "input": step.load / step.total,
        "transfer": step.transfer / step.total,
        "communication": step.communicate / step.total,
        "compute": (step.compute + step.update) / step.total,
    }
    bound = max(shares, key=lambda name: shares[name])
    share = shares[bound]
    if bound == "compute" and _starved(step):
        bound = "memory"
    return Verdict(bound, share, f"{share:.0%} of each step {_words(step, bound)}", _advice(step))


def _step(settings: Settings, metrics: Mapping[str, float], resources: Resources) -> _Step | None:
    stages = ("load", "transfer", "forward", "backward", "communicate", "update")
    seconds = {stage: metrics.get(f"{stage}_seconds", 0.0) for stage in stages}
    if not all(math.isfinite(s) and s >= 0 for s in seconds.values()) or math.fsum(seconds.values()) < CLOCK_SECONDS:
        return None
    return _Step(
        settings,
        metrics,
        cores=cores_of(settings, resources),
        gpus=resources.gpus,
        load=seconds["load"],
        transfer=seconds["transfer"],
        compute=seconds["forward"] + seconds["backward"],
        communicate=seconds["communicate"],
        update=seconds["update"],
    )


def _starved(step: _Step) -> bool:
    """Whether the memory is nearer to its limit than the arithmetic is to its own (the roofline's two roofs)."""
    bandwidth, arithmetic = step.known("fraction_of_bandwidth"), step.known("fraction_of_ceiling")
    return bandwidth is not None and arithmetic is not None and bandwidth > max(arithmetic, MEMORY_BOUND)


def _words(step: _Step, bound: Bound) -> str:
    settings, fraction = step.settings, step.known("fraction_of_ceiling")
    match bound:
        case "input" if settings.loader == "workers" and settings.num_workers:
            processes = "1 loader process decodes" if settings.num_workers == 1 else f"{settings.num_workers} decode"
            return f"waits for data, which {processes}"
        case "input" if settings.loader == "workers":
            return "waits for data, which the training process itself decodes, a picture at a time"
        case "input":
            return "waits for data, which the training process gathers"
        case "transfer":
            return "copies the batch to the GPU"
        case "communication":
            return "waits for the gradients of other processes"
        case "memory":
            bandwidth = step.known("fraction_of_bandwidth")
            return f"moves bytes, at {bandwidth:.0%} of the rate at which memory is copied here"
    reached = "" if fraction is None else f", at {fraction:.0%} of the ceiling of {settings.precision} here"
    return f"is forward, backward and update{reached}"


def _advice(step: _Step) -> tuple[Advice, ...]:
    """The best for each parameter, and of these the best first."""
    best: dict[str, Advice] = {}
    for advice in (*_on_loading(step), *_on_copying(step), *_on_arithmetic(step), *_on_the_rest(step)):
        known = best.get(advice.parameter)
        if advice.gain >= MIN_GAIN and (known is None or advice.gain > known.gain):
            best[advice.parameter] = advice
    return tuple(sorted(best.values(), key=lambda advice: -advice.gain))


# --- input ------------------------------------------------------------------------------------------------------------


def _on_loading(step: _Step) -> Iterator[Advice]:
    settings = step.settings
    if step.gpus and settings.loader != "device":
        why = "all pictures would stay on the GPU, decoded once, and nothing would be copied"
        yield Advice("loader", settings.loader, "device", step.gain(step.busy - step.transfer), why)
    if settings.loader == "workers":
        why = "the pictures would be decoded once, and a batch gathered at once"
        if not step.gpus and settings.num_workers:
            why += ", without processes that take cores from training"
        seconds = step.total - _taken_by_loaders(step) + settings.batch_size * GATHER_SECONDS
        yield Advice("loader", "workers", "memory", step.gain(seconds), why)
        yield from _more_workers(step)


def _taken_by_loaders(step: _Step) -> float:
    """Seconds of a step for which loader processes keep training waiting, or off its cores where they share them."""
    if step.gpus or not step.settings.num_workers:
        return step.load
    work = (step.known("loader_cores") or 0.0) * step.total
    return max(step.load, min(SHARED_CORES * work / step.cores, step.load + MOST_SHARED * step.compute))


def _more_workers(step: _Step) -> Iterator[Advice]:
    """As many as bring what more would bring. Those that there are work all the time while training waits for them."""
    now = step.settings.num_workers
    if now and (step.load < 0.1 * step.total or not step.gpus):
        return  # else they keep up already, or there is no core for more
    work = step.total * now if now else step.load
    most = step.cores - 1 if step.gpus else step.cores
    seconds = {n: _with_workers(step, work, n) for n in NUM_WORKERS if now < n <= most}
    if not seconds:
        return
    enough = next(n for n in seconds if seconds[n] <= min(seconds.values()) * MIN_GAIN)
    idle = f"{step.cores - 1 - now} more cores are" if step.cores - 1 - now > 1 else "another core is"
    why = f"batches would be decoded while others are trained on; {idle} there"
    if not step.gpus:
        why = "batches would be decoded while others are trained on, though on the same cores"
    yield Advice("num_workers", now, enough, step.gain(seconds[enough]), why)


def _with_workers(step: _Step, work: float, workers: int) -> float:
    """Seconds of a step: the slower of training and loading, which without a GPU share the cores."""
    if step.gpus:
        return max(step.busy, work / workers)
    lost = min(SHARED_CORES * work / step.cores, step.compute * MOST_SHARED / (1 - MOST_SHARED))
    return max(step.busy + lost, work / workers)


# --- transfer, arithmetic ---------------------------------------------------------------------------------------------


def _on_copying(step: _Step) -> Iterator[Advice]:
    if step.gpus and not step.settings.pin_memory and step.settings.loader != "device":
        why = "copies from pinned memory take about half as long"
        yield Advice("pin_memory", False, True, step.gain(step.total - step.transfer * (1 - PINNED_COPY)), why)


def _on_arithmetic(step: _Step) -> Iterator[Advice]:
    settings, rest = step.settings, step.total - step.compute
    if settings.precision == "fp32" and (seconds := _in_16_bits(step)) is not None:
        why = "the ceiling of bf16 was measured to be higher, and fewer bytes move"
        yield Advice("precision", "fp32", "bf16", step.gain(rest + seconds), why)
    if step.gpus:
        return
    if settings.memory_format == "contiguous":
        why = "convolutions are faster with a pixel's channels together"
        gain = step.gain(rest + step.compute / CHANNELS_LAST)
        yield Advice("memory_format", "contiguous", "channels_last", gain, why)
    if settings.conv_kernel == "library" and settings.precision in FEW_PRODUCTS:
        why = "each layer would use the kernel that is the fastest here"
        gain = step.gain(rest + step.compute / (1 + FEW_PRODUCTS[settings.precision] * min(1.0, settings.width)))
        yield Advice("conv_kernel", "library", "auto", gain, why)
    in_system = step.known("system_time_fraction")
    if settings.allocator == "system" and settings.strategy == "single" and in_system:  # or it may be messages
        why = f"{in_system:.0%} of the processor's time goes to asking the system for memory and giving it back"
        yield Advice("allocator", "system", "retain", step.gain(rest + step.compute * (1 - in_system)), why)


def _in_16_bits(step: _Step) -> float | None:
    """Forward and backward: multiplying gets faster by the ceilings, all else by the bytes, of which there are half.

    None: no ceilings are known.
    """
    fraction = step.known("fraction_of_ceiling")
    fp32, bf16 = (step.known(f"ceiling_{p}_teraflops_per_second") for p in ("fp32", "bf16"))
    if fraction is None or not fp32 or not bf16 or bf16 <= fp32 or not step.compute:
        return None
    multiplying = min(1.0, fraction * step.total / step.compute)
    most = math.inf if step.gpus else MOST_BY_16_BITS.get(step.settings.conv_kernel, math.inf)
    ratio = min(bf16 / fp32, most)
    return step.compute * (multiplying / ratio + (1 - multiplying) / 2)


# --- processes, threads, batch ----------------------------------------------------------------------------------------


def _on_the_rest(step: _Step) -> Iterator[Advice]:
    settings = step.settings
    if settings.strategy != "single" and not step.gpus and settings.world_size is None:
        why = "one process with all cores has nobody to wait for"
        yield Advice("strategy", settings.strategy, "single", step.gain(step.total - step.communicate), why)
    if settings.threads is not None and settings.threads < step.cores and not step.gpus:
        seconds = step.total - step.compute * (1 - settings.threads / (step.cores * MORE_THREADS))
        why = f"{step.cores - settings.threads} of {step.cores} cores have no thread"
        yield Advice("threads", settings.threads, step.cores, step.gain(seconds), why)
    yield from _larger_batch(step)


def _larger_batch(step: _Step) -> Iterator[Advice]:
    """What a step costs whatever its batch, shared by more pictures; the largest batch that still pays and fits."""
    batch_size, memory = step.settings.batch_size, step.known("peak_memory_fraction")
    fixed = step.update + step.communicate + min(_for_any_batch(step), MOST_FOR_ANY_BATCH * step.compute)
    gains = {factor: step.gain(step.total - fixed * (1 - 1 / factor)) for factor in BATCH_FACTORS}
    fit = [f for f in BATCH_FACTORS if memory is not None and memory * f <= MOST_MEMORY]
    paying = [f for f in fit if gains[f] >= MIN_GAIN * gains.get(f // 2, 1.0)]
    if paying:
        why = f"{fixed / step.total:.0%} of each step is the same for any batch; accuracy is another question"
        yield Advice("batch_size", batch_size, batch_size * paying[-1], gains[paying[-1]], why)


def _for_any_batch(step: _Step) -> float:
    """Seconds of forward and backward that would be the same for a larger one."""
    measured = not step.gpus and (step.settings.precision, step.settings.conv_kernel) != ("bf16", "library")
    on_weights = ON_WEIGHTS.get(step.settings.precision, ON_WEIGHTS_BY_BYTES) if measured else ON_WEIGHTS_BY_BYTES
    return (on_weights - 1) * step.update + (0 if step.gpus else OPERATORS_SECONDS)
