"""Trainable: VGG19 on CIFAR-10, or on other pictures of its format."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from typing import TypeVar

from trainables.contract import (
    Config,
    Cost,
    Data,
    InfeasibleError,
    Layout,
    MemoryNeed,
    Metric,
    Parameter,
    Resources,
    Scalar,
    Verdict,
    Worker,
)
from trainables.machine import processor
from trainables.parallel.layouts import layout_of
from trainables.settings import Settings, checked, parameters_of
from trainables.strategy_table import STRATEGIES

T = TypeVar("T")

SETTINGS = Settings
PARAMETERS: Mapping[str, Parameter] | None = parameters_of(SETTINGS, STRATEGIES)

METRICS: Mapping[str, Metric] | None = {
    "val_accuracy": Metric("fraction", "accuracy on the validation pictures, after the epoch", probed=False),
    "val_loss": Metric("nats", "cross-entropy on the validation pictures", probed=False),
    "train_loss": Metric("nats", "label-smoothed cross-entropy, mean over the epoch's steps", probed=False),
    "images_per_second": Metric(
        "images/s", "rate of the whole job, waiting for data included, warm-up and evaluation excluded"
    ),
    "images_per_second_low": Metric("images/s", "lower end of the 95% interval"),
    "images_per_second_high": Metric("images/s", "upper end of the 95% interval"),
    "throughput_windows": Metric("windows", "windows that images_per_second is measured over"),
    "throughput_images": Metric("images", "images in these windows"),
    "throughput_seconds": Metric("s", "duration of these windows"),
    "warmup_steps": Metric("steps", "steps left out at the beginning, until they got no faster"),
    "contended_windows": Metric(
        "windows", "windows left out because other processes took more than 12% of the trial's cores"
    ),
    "contended": Metric("0 or 1", "1: too few windows were uncontended, so images_per_second is over contended ones"),
    "load_seconds": Metric("s", "per step, waiting for data; this and the next five from profiled steps"),
    "transfer_seconds": Metric("s", "per step, copying to the GPU"),
    "forward_seconds": Metric("s", "per step, network and loss"),
    "backward_seconds": Metric("s", "per step, until the last gradient is there"),
    "communicate_seconds": Metric("s", "per step, waiting for gradients of other processes after backward"),
    "update_seconds": Metric("s", "per step, optimizer"),
    "step_seconds": Metric("s", "per step, sum of these stages"),
    "profiled_steps": Metric("steps", "steps that the stages are means over"),
    "cpu_utilization": Metric("fraction", "use of the trial's cores by its own processes"),
    "machine_cpu_utilization": Metric("fraction", "use of all cores by all processes"),
    "resident_gib": Metric("GiB", "resident memory of the trial's processes, mean while training"),
    "loader_processes": Metric("processes", "processes of the loader"),
    "loader_cores": Metric("cores", "cores used by the loader processes, per process of the trial"),
    "system_time_fraction": Metric("fraction", "system time in the trial's own CPU time, mostly for memory"),
    "nodes": Metric("nodes", "nodes of the trial's processes, in a cluster of several"),
    "utilization_imbalance": Metric("ratio", "busiest GPU, on a CPU process, over the mean of all; 1: all alike"),
    "memory_imbalance": Metric("ratio", "fullest GPU or process at its peak over the mean of all; 1: all alike"),
    "gradient_staleness_mean": Metric(
        "updates", "updates by others while a worker computed; asynchronous parameter_server"
    ),
    "gradient_staleness_max": Metric("updates", "maximum of them"),
    "gpu_utilization": Metric("fraction", "time in which the GPU was busy"),
    "gpu_memory_gib": Metric("GiB", "memory in use on the fullest GPU, by all processes"),
    "gpu_power_watts": Metric("W", "power of the trial's GPUs"),
    "gpu_clock_mhz": Metric("MHz", "clock of the multiprocessors"),
    "gpu_throttled_fraction": Metric("fraction", "time in which heat or power slowed the GPU"),
    "images_per_joule": Metric("images/J", "images per energy of the GPUs, or of the processor if it reports energy"),
    "teraflops_per_second": Metric("TFLOP/s", "counted operations of the network at images_per_second"),
    "memory_gib_per_second": Metric("GiB/s", "memory traffic of the network's operators, as if there were no caches"),
    "fraction_of_bandwidth": Metric(
        "fraction", "memory traffic over the rate of copying memory here; above 1 thanks to caches"
    ),
    "ceiling_fp32_teraflops_per_second": Metric("TFLOP/s", "best rate measured on these cores or GPUs in fp32"),
    "ceiling_bf16_teraflops_per_second": Metric(
        "TFLOP/s", "likewise in bf16; absent on a processor without instructions for it"
    ),
    "ceiling_fp16_teraflops_per_second": Metric("TFLOP/s", "likewise in fp16; absent without a GPU"),
    "fraction_of_ceiling": Metric(
        "fraction", "rate over the best matrix or convolution rate measured in this precision"
    ),
    "fraction_of_matrix_rate": Metric("fraction", "rate over the matrix rate measured in this precision"),
    "epoch_seconds": Metric("s", "training of the epoch", probed=False),
    "evaluation_seconds": Metric("s", "evaluation after the epoch", probed=False),
    "checkpoint_seconds": Metric(
        "s", "writing the checkpoint; absent from an epoch that is reported again", probed=False
    ),
    "peak_memory_gib": Metric("GiB", "peak so far: tensors on the fullest GPU, or resident memory of all processes"),
    "peak_memory_fraction": Metric(
        "fraction", "peak over that GPU's memory, or the machine's or container's", limit=1.0
    ),
    "predicted_memory_gib": Metric("GiB", "peak_memory_gib predicted before the start"),
    "test_accuracy": Metric("fraction", "accuracy on the test pictures; measured once, at the end", probed=False),
}


def unavailable(parameter: str, value: Scalar, resources: Resources) -> str | None:
    """Return why these resources do not allow the value; None: they do."""
    devices, device = (resources.gpus, "GPU") if resources.gpus else (resources.cpus, "core")
    row = STRATEGIES[str(value)] if parameter == "strategy" else None
    if resources.gpus == 0 and ((parameter, value) in CUDA_ONLY or (row and row.all_gpus)):
        return "needs a CUDA device"
    if resources.gpus == 0 and (parameter, value) == ("precision", "bf16") and processor.bf16() == "emulated":
        return "PyTorch only emulates it on this processor, 10 to 100 times slower than fp32"
    if resources.gpus and (parameter, value) == ("precision", "bf16") and not processor.gpu_bf16():
        return "these GPUs have no instructions for it"
    if (parameter, value) == ("compile", True) and not any(map(shutil.which, COMPILERS)):
        return f"needs a C++ compiler, one of {', '.join(COMPILERS)}"
    if parameter == "threads" and int(value) > resources.node.cpus:
        return _too_few(int(value), "core", resources.node.cpus)
    if (parameter, value) == ("placement", "spread") and resources.nodes == 1:
        return "needs several nodes, there is 1"
    needed = int(value) if parameter == "world_size" else 0
    if row and not row.one_process:
        needed = 2  # one process alone is slower than `single`
    return _too_few(needed, device, devices) if needed > devices else None


COMPILERS = ("g++", "clang++", "c++")
CUDA_ONLY = (
    ("precision", "fp16"),
    ("loader", "device"),
    ("pin_memory", True),
    ("cuda_graphs", True),
)


def layout(config: Config, resources: Resources) -> Layout:
    """Return one process with everything, or the strategy's processes with equal shares."""
    settings = _settings(config)
    for name, value in vars(settings).items():
        if name == "strategy" and settings.world_size is not None:
            continue  # decides how many are needed
        if value is not None and (reason := unavailable(name, value, resources)):
            raise InfeasibleError(f"{name} {value}: {reason}")
    return layout_of(settings, resources)


def locate_data(data: Data) -> Data:
    """Find the pictures."""
    from trainables.samples import cifar10

    return cifar10.locate(data)


def describe_data(data: Data) -> str:
    """Return name and counts of the pictures."""
    from trainables.samples import cifar10

    return cifar10.describe(data)


def estimate(config: Config, data: Data) -> Cost:
    """Time a few steps in this process alone, whatever the strategy."""
    from trainables.prediction import training_cost

    return training_cost.training_cost(_settings(config), data)


def train(config: Config, worker: Worker) -> None:
    """Train VGG19 in the loop that all strategies share."""
    from trainables import loop

    _isolated(config, worker, loop.fit)


def probe(config: Config, worker: Worker) -> None:
    """Train for some seconds to measure the rate; the weights are thrown away."""
    from trainables import loop

    _isolated(config, worker, loop.probe)


def test(config: Config, worker: Worker) -> Mapping[str, float]:
    """Return the accuracy on the test pictures."""
    from trainables import loop

    return _isolated(config, worker, loop.test)


def explain(config: Config, metrics: Mapping[str, float], resources: Resources) -> Verdict | None:
    """Find the bottleneck from the stages of a step."""
    from trainables.measure import verdict

    return verdict.explain(_settings(config), metrics, resources)


def memory(config: Config, data: Data, resources: Resources) -> MemoryNeed | None:
    """Predict memory from a pass without numbers; this machine is calibrated once, by two tiny trainings."""
    from trainables.prediction import memory_need

    return memory_need.memory_need(_settings(config), memory_need.job_of(data, layout(config, resources)))


def largest_batch(config: Config, data: Data, resources: Resources, available: int) -> int | None:
    """Search the largest batch by such passes."""
    from trainables.prediction import memory_need

    job = memory_need.job_of(data, layout(config, resources))
    return memory_need.largest_batch(_settings(config), job, available)


def _isolated(config: Config, worker: Worker, work: Callable[[Settings, Worker], T]) -> T:
    """Call `work` on cores of its own and restore the process afterwards."""
    from trainables.machine import affinity, isolation
    from trainables.parallel import peers
    from trainables.prediction import memory_need

    settings = _settings(config)
    with affinity.claimed_cores(worker.resources.cpus), peers.reported():
        try:
            return isolation.isolated(
                lambda: work(settings, worker),
                threads=settings.threads or worker.resources.cpus,
                allocator=settings.allocator,
                flush_denormals=settings.flush_denormals,
            )
        except isolation.OutOfMemoryError as error:
            shortage = f"{error}"
    # raised out here, so that no traceback keeps the memory alive
    shape = Layout(worker.world_size, worker.resources.cpus, worker.resources.gpus)
    need = memory_need.memory_need(settings, memory_need.job_of(worker.data, shape))
    message, metrics = f"{shortage}; predicted were {need.total / 2**30:.1f}", {}
    if need.available is not None:
        message += f" of {need.available / 2**30:.1f} GiB"
        # above 1 whatever was predicted: it took more than there is
        metrics = {"peak_memory_fraction": max(1.05, need.total / need.available)}
    raise InfeasibleError(message, metrics)


def _settings(config: Config) -> Settings:
    return SETTINGS(**checked(config, PARAMETERS or {}))


def _too_few(needed: int, what: str, there: int) -> str:
    return f"needs {needed} {what}s, there {'is' if there == 1 else 'are'} {there}"
