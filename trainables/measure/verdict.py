"""Verdict on a trial: its bottleneck, and the gain from changing one setting, from its metrics alone, without torch.

A step is load + transfer + forward + backward + communicate + update. Each advice is this sum with one term changed
according to the constants below, which were measured on machines without a GPU (results/LOG.md). Those that only hold
for VGG19 give no advice on other networks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from trainables.contract import Advice, Bound, Resources, Verdict
from trainables.machine.processor import precision_of
from trainables.parallel.layouts import cores_of
from trainables.settings import Settings
from trainables.strategy_table import STRATEGIES, captures
from trainables.vgg19_settings import Vgg19Settings, loader_of

CLOCK_SECONDS = 1e-9  # resolution of the clocks
MIN_GAIN = 1.03  # a smaller gain is within the noise
MAX_MEMORY = 0.9  # of the available memory, for a larger batch
NUM_WORKERS = (1, 2, 4, 8, 16, 32)
BATCH_FACTORS = (2, 4, 8)

GATHER_SECONDS = 7e-6  # of a core, per image gathered with its batch
SHARED_CORES = 2.4  # core-seconds that training loses per core-second of loader processes on the same cores
MAX_SHARED = 0.6  # of forward and backward with loader processes on the same cores: the most that training loses
PINNED_COPY = 0.5  # time of a copy from pinned memory, over that from other memory
MORE_THREADS = 0.89  # gain from more threads over the ideal
CHANNELS_LAST = 1.15  # speed of forward and backward on a CPU, over that of contiguous tensors
MAX_BY_16_BITS = {"library": 2.2}  # speedup on a CPU by kernel: memory limits it before the ceilings do
FEW_PRODUCTS = {"bf16": 0.5, "fp32": 0.35}  # gain of forward and backward by conv_kernel auto, per unit of width
# Cost of a step that does not depend on its batch. Work on weights, over the update: the update itself, conversion and
# rearrangement, reading for each product, writing of gradients. Besides, the overhead of launching operators.
ON_WEIGHTS = {"fp32": 6.0, "bf16": 4.0}
ON_WEIGHTS_BY_BYTES = 1.5  # by prediction/memory_traffic.py, where not measured: library in bf16, GPUs
OPERATORS_SECONDS = 0.008
MAX_FIXED = 0.75  # of forward and backward
HOST_BOUND, LOW = 0.9, 0.25  # host's time over the step's; fraction of the ceiling below which a GPU waits for it
MEMORY_BOUND = 0.4  # of the memory's rate: training below it is not memory-bound


@dataclass(frozen=True)
class _Step:
    """Stages of one step, in seconds; `compute` is forward and backward."""

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
    def vgg(self) -> Vgg19Settings | None:
        """Settings of VGG19; None: another network is trained."""
        return self.settings if isinstance(self.settings, Vgg19Settings) else None

    @property
    def total(self) -> float:
        return self.load + self.transfer + self.compute + self.communicate + self.update

    @property
    def busy(self) -> float:
        """Total without waiting for data."""
        return self.total - self.load

    def gain(self, seconds: float) -> float:
        """Speedup if the step took `seconds`."""
        return self.total / max(seconds, self.total / 1000)  # no step takes zero time

    def known(self, name: str) -> float | None:
        value = self.metrics.get(name, math.nan)
        return value if math.isfinite(value) else None


def explain(settings: Settings, metrics: Mapping[str, float], resources: Resources) -> Verdict | None:
    """Return the stage with the largest share of a step, and advice, best first; None: no step was profiled.

    `metrics` has the names of `vgg19_cifar10.METRICS`; advice that needs an absent metric is left out.
    """
    if (seconds := _stage_seconds(metrics)) is None:
        return None
    precision = precision_of(settings.precision, "cuda" if resources.gpus else "cpu")
    step = _Step(
        replace(settings, precision=precision),
        metrics,
        cores=cores_of(settings, resources),
        gpus=resources.gpus,
        compute=seconds["forward"] + seconds["backward"],
        **{stage: value for stage, value in seconds.items() if stage not in ("forward", "backward")},
    )
    bound, share = _largest_share(seconds)
    # the roofline's two limits: memory bounds the step if it is nearer to its limit than arithmetic is
    bandwidth, arithmetic = step.known("fraction_of_bandwidth"), step.known("fraction_of_ceiling")
    if bound == "compute" and bandwidth is not None and arithmetic is not None:
        bound = "memory" if bandwidth > max(arithmetic, MEMORY_BOUND) else "compute"
    best: dict[str, Advice] = {}  # by parameter
    for advice in (*_on_loading(step), *_on_copying(step), *_on_arithmetic(step), *_on_the_rest(step)):
        known = best.get(advice.parameter)
        if advice.gain >= MIN_GAIN and (known is None or advice.gain > known.gain):
            best[advice.parameter] = advice
    ordered = tuple(sorted(best.values(), key=lambda advice: -advice.gain))
    return Verdict(bound, share, f"{share:.0%} of each step {_words(step, bound)}", ordered)


def bottleneck(metrics: Mapping[str, float]) -> Verdict | None:
    """Return the stage with the largest share of a step of any training, without advice."""
    if (seconds := _stage_seconds(metrics)) is None:
        return None
    bound, share = _largest_share(seconds)
    words = {
        "input": "waits for data",
        "transfer": "copies the batch to the GPU",
        "communication": "waits for the gradients of other processes",
    }
    return Verdict(bound, share, f"{share:.0%} of each step {words.get(bound, 'is training on the batch')}")


def _stage_seconds(metrics: Mapping[str, float]) -> dict[str, float] | None:
    stages = ("load", "transfer", "forward", "backward", "communicate", "update")
    seconds = {stage: metrics.get(f"{stage}_seconds", 0.0) for stage in stages}
    if not all(math.isfinite(s) and s >= 0 for s in seconds.values()) or math.fsum(seconds.values()) < CLOCK_SECONDS:
        return None
    return seconds


def _largest_share(seconds: Mapping[str, float]) -> tuple[Bound, float]:
    """Return what bounds a step, and its share."""
    parts: dict[Bound, float] = {
        "input": seconds["load"],
        "transfer": seconds["transfer"],
        "communication": seconds["communicate"],
        "compute": seconds["forward"] + seconds["backward"] + seconds["update"],
    }
    bound = max(parts, key=lambda name: parts[name])
    return bound, parts[bound] / math.fsum(parts.values())


def _words(step: _Step, bound: Bound) -> str:
    settings, fraction = step.settings, step.known("fraction_of_ceiling")
    match bound:
        case "input" if settings.loader_processes:
            processes = "1 loader process loads" if settings.num_workers == 1 else f"{settings.num_workers} load"
            return f"waits for data, which {processes}"
        case "input" if step.vgg is None or step.vgg.loader == "workers":
            return "waits for data, which the training process itself loads, a sample at a time"
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


def _on_loading(step: _Step) -> Iterator[Advice]:
    vgg = step.vgg
    if vgg and step.gpus and loader_of(vgg.loader, "cuda") != "device":
        why = "all pictures would stay on the GPU, decoded once, and nothing would be copied"
        yield Advice("loader", vgg.loader, "device", step.gain(step.busy - step.transfer), why)
    if vgg and vgg.loader == "workers":
        why = "the pictures would be decoded once, and a batch gathered at once"
        if not step.gpus and vgg.num_workers:
            why += ", without processes that take cores from training"
        seconds = step.total - _taken_by_loaders(step) + vgg.batch_size * GATHER_SECONDS
        yield Advice("loader", "workers", "memory", step.gain(seconds), why)
    if vgg is None or vgg.loader == "workers":
        yield from _more_workers(step)


def _taken_by_loaders(step: _Step) -> float:
    """Seconds of a step lost to loader processes, by waiting for data or by sharing cores."""
    if step.gpus or not step.settings.num_workers:
        return step.load
    work = (step.known("loader_cores") or 0.0) * step.total
    return max(step.load, min(SHARED_CORES * work / step.cores, step.load + MAX_SHARED * step.compute))


def _more_workers(step: _Step) -> Iterator[Advice]:
    """The fewest workers whose gain more would not exceed. Existing ones work all the time while training waits."""
    now = step.settings.num_workers
    if now and (step.load < 0.1 * step.total or not step.gpus):
        return  # they keep up already, or there is no core for more
    work = step.total * now if now else step.load
    most = step.cores - 1 if step.gpus else step.cores
    seconds = {n: _with_workers(step, work, n) for n in NUM_WORKERS if now < n <= most}
    if not seconds:
        return
    enough = next(n for n in seconds if seconds[n] <= min(seconds.values()) * MIN_GAIN)
    idle = f"{step.cores - 1 - now} more cores are" if step.cores - 1 - now > 1 else "another core is"
    why = f"batches would be loaded while others are trained on; {idle} there"
    if not step.gpus:
        why = "batches would be loaded while others are trained on, though on the same cores"
    yield Advice("num_workers", now, enough, step.gain(seconds[enough]), why)


def _with_workers(step: _Step, work: float, workers: int) -> float:
    """Seconds of a step: the slower one of training and loading, which share the cores without a GPU."""
    if step.gpus:
        return max(step.busy, work / workers)
    lost = min(SHARED_CORES * work / step.cores, step.compute * MAX_SHARED / (1 - MAX_SHARED))
    return max(step.busy + lost, work / workers)


def _on_copying(step: _Step) -> Iterator[Advice]:
    if step.gpus and not step.settings.pin_memory and not (step.vgg and loader_of(step.vgg.loader, "cuda") == "device"):
        why = "copies from pinned memory take about half as long"
        yield Advice("pin_memory", False, True, step.gain(step.total - step.transfer * (1 - PINNED_COPY)), why)


def _on_arithmetic(step: _Step) -> Iterator[Advice]:
    settings, rest = step.settings, step.total - step.compute
    if settings.precision == "fp32" and (seconds := _in_16_bits(step)) is not None:
        why = "the ceiling of bf16 was measured to be higher, and fewer bytes move"
        yield Advice("precision", "fp32", "bf16", step.gain(rest + seconds), why)
    if step.gpus:
        return
    if step.vgg and settings.memory_format == "contiguous":
        why = "convolutions are faster with a pixel's channels together"
        gain = step.gain(rest + step.compute / CHANNELS_LAST)
        yield Advice("memory_format", "contiguous", "channels_last", gain, why)
    if step.vgg and step.vgg.conv_kernel == "library" and settings.precision in FEW_PRODUCTS:
        why = "each layer would use the kernel that is the fastest here"
        gain = step.gain(rest + step.compute / (1 + FEW_PRODUCTS[settings.precision] * min(1.0, step.vgg.width)))
        yield Advice("conv_kernel", "library", "auto", gain, why)
    in_system = step.known("system_time_fraction")
    # with several processes the system's time may be for messages
    if settings.allocator == "system" and settings.strategy == "single" and in_system:
        why = f"{in_system:.0%} of the processor's time goes to asking the system for memory and giving it back"
        yield Advice("allocator", "system", "retain", step.gain(rest + step.compute * (1 - in_system)), why)


def _in_16_bits(step: _Step) -> float | None:
    """Seconds of forward and backward: products speed up by the ceilings, the rest by half as many bytes.

    None: the ceilings are unknown.
    """
    fraction = step.known("fraction_of_ceiling")
    fp32, bf16 = (step.known(f"ceiling_{p}_teraflops_per_second") for p in ("fp32", "bf16"))
    if fraction is None or not fp32 or not bf16 or bf16 <= fp32 or not step.compute:
        return None
    multiplying = min(1.0, fraction * step.total / step.compute)
    most = math.inf if step.gpus else MAX_BY_16_BITS.get(step.vgg.conv_kernel if step.vgg else "", math.inf)
    ratio = min(bf16 / fp32, most)
    return step.compute * (multiplying / ratio + (1 - multiplying) / 2)


def _on_the_rest(step: _Step) -> Iterator[Advice]:
    settings = step.settings
    if settings.strategy != "single" and not step.gpus and settings.world_size is None:
        why = "one process with all cores waits for no other"
        yield Advice("strategy", settings.strategy, "single", step.gain(step.total - step.communicate), why)
    if settings.threads is not None and settings.threads < step.cores and not step.gpus:
        seconds = step.total - step.compute * (1 - settings.threads / (step.cores * MORE_THREADS))
        why = f"{step.cores - settings.threads} of {step.cores} cores have no thread"
        yield Advice("threads", settings.threads, step.cores, step.gain(seconds), why)
    yield from _on_launching(step)
    yield from _larger_batch(step)


def _on_launching(step: _Step) -> Iterator[Advice]:
    """Fewer launches where the GPU waits for the host's; the step would take at least the time that the GPU is busy."""
    settings, host, reached = step.settings, step.known("host_seconds"), step.known("fraction_of_ceiling")
    busy = step.known("gpu_utilization")
    if not step.gpus or host is None or reached is None or busy is None:
        return
    if host < HOST_BOUND * step.total or reached >= LOW or captures(settings, "cuda"):
        return
    gain = step.gain(step.total * busy)
    why = f"launching takes the host {host / step.total:.0%} of a step, and the GPU is busy for {busy:.0%} of the time"
    if captures(replace(settings, cuda_graphs="auto"), "cuda"):
        yield Advice("cuda_graphs", settings.cuda_graphs, True, gain, why)
    elif not settings.compile and not STRATEGIES[settings.strategy].unsupported.get("compile"):
        yield Advice("compile", False, True, gain, f"{why}; fused kernels are fewer")


def _larger_batch(step: _Step) -> Iterator[Advice]:
    """The largest batch that fits, while doubling still pays: more samples share the step's fixed cost."""
    batch_size, memory = step.settings.batch_size, step.known("peak_memory_fraction")
    unmeasured = step.vgg is None or (step.settings.precision, step.vgg.conv_kernel) == ("bf16", "library")
    measured = not step.gpus and not unmeasured
    on_weights = ON_WEIGHTS.get(step.settings.precision, ON_WEIGHTS_BY_BYTES) if measured else ON_WEIGHTS_BY_BYTES
    in_compute = (on_weights - 1) * step.update + (0 if step.gpus else OPERATORS_SECONDS)
    fixed = step.update + step.communicate + min(in_compute, MAX_FIXED * step.compute)
    gains = {factor: step.gain(step.total - fixed * (1 - 1 / factor)) for factor in BATCH_FACTORS}
    fit = [f for f in BATCH_FACTORS if memory is not None and memory * f <= MAX_MEMORY]
    paying = [f for f in fit if gains[f] >= MIN_GAIN * gains.get(f // 2, 1.0)]
    if paying:
        why = f"{fixed / step.total:.0%} of each step is the same for any batch; accuracy is another question"
        yield Advice("batch_size", batch_size, batch_size * paying[-1], gains[paying[-1]], why)
