"""VGG19 trained on CIFAR-10, or on other pictures of its form: the parameters, the metrics, the layout of a trial."""

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
from trainables.parallel.layouts import FEWEST_PROCESSES, IN_ONE_PROCESS, layout_of
from trainables.settings import Settings, checked

T = TypeVar("T")

PARAMETERS: Mapping[str, Parameter] | None = {
    "batch_size": Parameter("int", 128, "pictures per step, over all processes", low=1),
    "learning_rate": Parameter(
        "float", 0.1, "the highest; reached after a fifth of the steps, zero at the end", low=1e-8, bears_on="trained"
    ),
    "optimizer": Parameter("str", "sgd", "sgd has Nesterov momentum", choices=("sgd", "adamw")),
    "momentum": Parameter("float", 0.9, "of sgd; the first beta of adamw", low=0.0, high=0.9999, bears_on="trained"),
    "weight_decay": Parameter(
        "float", 5e-4, "of weights; normalisation and biases do not decay", low=0.0, bears_on="trained"
    ),
    "label_smoothing": Parameter("float", 0.1, "of the training loss", low=0.0, high=0.9999, bears_on="trained"),
    "seed": Parameter(
        "int", 0, "of weights, order, augmentation and dropout; not of the validation split", low=0, bears_on="trained"
    ),
    "width": Parameter("float", 1.0, "channels as a multiple of VGG19's own", low=0.01),
    "head": Parameter("str", "average_pooling", "classifier", choices=("average_pooling", "fully_connected")),
    "strategy": Parameter("str", "single", "how devices share the work", choices=tuple(FEWEST_PROCESSES)),
    "world_size": Parameter("int", None, "processes of a strategy with several; null: one per GPU, or two", low=1),
    "server": Parameter(
        "str",
        "synchronous",
        "of parameter_server: one update by all gradients of a step, or one by each as it comes",
        choices=("synchronous", "asynchronous"),
    ),
    "batch_norm": Parameter(
        "str", "local", "by each process's pictures, or by the whole batch", choices=("local", "synchronised")
    ),
    "num_microbatches": Parameter(
        "int", 4, "of equal size, that pipeline cuts a batch into; with 1 its stages work in turn", low=1
    ),
    "schedule": Parameter(
        "str",
        "gpipe",
        "of pipeline: all micro-batches forward, then all backward; or each backward as soon as it can",
        choices=("gpipe", "1f1b"),
        bears_on="probed",
    ),
    "placement": Parameter(
        "str",
        "pack",
        "of processes on the nodes of a cluster: on few, or on many",
        choices=("pack", "spread"),
        bears_on="probed",
    ),
    "threads": Parameter("int", None, "per process; null: all cores that it has", low=1, bears_on="probed"),
    "precision": Parameter(
        "str",
        "auto",
        "fp32, or autocast to 16 bits; auto: bf16 where it is computed in, else fp32",
        choices=("auto", "fp32", "bf16", "fp16"),
    ),
    "memory_format": Parameter(
        "str", "channels_last", "of pictures", choices=("contiguous", "channels_last"), bears_on="probed"
    ),
    "loader": Parameter(
        "str",
        "memory",
        "a picture at a time, a batch at once, or on the GPU",
        choices=("workers", "memory", "device"),
        bears_on="probed",
    ),
    "num_workers": Parameter(
        "int", 0, "processes of the loader `workers`, per process of the trial", low=0, bears_on="probed"
    ),
    "pin_memory": Parameter("bool", False, "copy to the GPU from pinned memory", bears_on="probed"),
    "conv_kernel": Parameter(
        "str",
        "auto",
        "of small maps on a CPU: PyTorch's, few matrix products, or the faster one for each layer, measured once",
        choices=("library", "gemm", "auto"),
        bears_on="probed",
    ),
    "allocator": Parameter(
        "str",
        "retain",
        "of host memory: retain keeps freed blocks until the trial ends",
        choices=("system", "retain"),
        bears_on="probed",
    ),
    "fused_optimizer": Parameter("bool", True, "update all weights by one kernel", bears_on="probed"),
    "flush_denormals": Parameter("bool", False, "take numbers below 1e-38 as zero, on a CPU", bears_on="probed"),
    "compile": Parameter(
        "bool", False, "compile the network by torch.compile before the first step", bears_on="probed"
    ),
    "cuda_graphs": Parameter(
        "bool", False, "replay the step as one CUDA graph; needs fused_optimizer", bears_on="probed"
    ),
    "trace_steps": Parameter(
        "int", 0, "that torch.profiler records in trace.json in the trial's folder", low=0, bears_on="probed"
    ),
}

METRICS: Mapping[str, Metric] | None = {
    "val_accuracy": Metric("fraction", "on the validation pictures, after the epoch", probed=False),
    "val_loss": Metric("nats", "cross-entropy on the validation pictures", probed=False),
    "train_loss": Metric("nats", "label-smoothed cross-entropy, mean over the epoch's steps", probed=False),
    "images_per_second": Metric("images/s", "of the whole job, waiting for data included; no warm-up, no evaluation"),
    "images_per_second_low": Metric("images/s", "lower end of the 95% interval"),
    "images_per_second_high": Metric("images/s", "upper end of it"),
    "throughput_windows": Metric("windows", "that images_per_second is over"),
    "throughput_images": Metric("images", "in these windows"),
    "throughput_seconds": Metric("s", "of these windows"),
    "warmup_steps": Metric("steps", "left out at the beginning, until they got no faster"),
    "disturbed_windows": Metric("windows", "left out because others took more than 12% of the trial's cores"),
    "disturbed": Metric("0 or 1", "1: too few windows were quiet, so images_per_second is over disturbed ones"),
    "load_seconds": Metric("s", "per step, waiting for data; this and the next five by profiled steps"),
    "transfer_seconds": Metric("s", "per step, copying to the GPU"),
    "forward_seconds": Metric("s", "per step, network and loss"),
    "backward_seconds": Metric("s", "per step, until the last gradient is there"),
    "communicate_seconds": Metric("s", "per step, waiting for gradients of other processes after that"),
    "update_seconds": Metric("s", "per step, optimizer"),
    "step_seconds": Metric("s", "per step, sum of these stages"),
    "profiled_steps": Metric("steps", "that the stages are means over"),
    "cpu_utilization": Metric("fraction", "of the trial's cores, by its own processes"),
    "machine_cpu_utilization": Metric("fraction", "of all cores, by everybody"),
    "resident_gib": Metric("GiB", "of memory in the trial's processes, mean while training"),
    "loader_processes": Metric("processes", "of the loader"),
    "loader_cores": Metric("cores", "that the processes of the loader take, of each process of the trial"),
    "system_time_fraction": Metric("fraction", "of the trial's own CPU time that the system takes, mostly for memory"),
    "nodes": Metric("nodes", "that the trial's processes were on, where the cluster has several"),
    "utilization_imbalance": Metric("ratio", "of the busiest GPU, on a CPU process, to the mean of all; 1: all alike"),
    "memory_imbalance": Metric("ratio", "of the fullest GPU or process at its peak to the mean of all; 1: all alike"),
    "gradient_staleness_mean": Metric("updates", "by others while a worker computed; asynchronous parameter_server"),
    "gradient_staleness_max": Metric("updates", "the most of them"),
    "gpu_utilization": Metric("fraction", "of the time in which the GPU did something"),
    "gpu_memory_gib": Metric("GiB", "in use on the fullest GPU, by everybody"),
    "gpu_power_watts": Metric("W", "of the trial's GPUs"),
    "gpu_clock_mhz": Metric("MHz", "of the multiprocessors"),
    "gpu_throttled_fraction": Metric("fraction", "of the time in which heat or power slowed the GPU"),
    "images_per_joule": Metric("images/J", "by the energy of the GPUs, or of the processor where it tells"),
    "teraflops_per_second": Metric("TFLOP/s", "counted operations of the network at images_per_second"),
    "memory_gib_per_second": Metric("GiB/s", "read and written by the operators of the network, were there no caches"),
    "fraction_of_bandwidth": Metric("fraction", "of the rate at which memory is copied here; more than 1: by caches"),
    "ceiling_fp32_teraflops_per_second": Metric("TFLOP/s", "the best that these cores or GPUs did in fp32"),
    "ceiling_bf16_teraflops_per_second": Metric("TFLOP/s", "in bf16; absent where a processor has nothing for it"),
    "ceiling_fp16_teraflops_per_second": Metric("TFLOP/s", "in fp16; absent without a GPU"),
    "fraction_of_ceiling": Metric("fraction", "of the best matrix or convolution rate measured in this precision"),
    "fraction_of_matrix_rate": Metric("fraction", "of the matrix rate measured in this precision"),
    "epoch_seconds": Metric("s", "of the epoch's training", probed=False),
    "evaluation_seconds": Metric("s", "of the evaluation after it", probed=False),
    "checkpoint_seconds": Metric(
        "s", "of writing the checkpoint; absent from an epoch that is reported again", probed=False
    ),
    "peak_memory_gib": Metric("GiB", "so far; tensors on the fullest GPU, or what is resident in all processes"),
    "peak_memory_fraction": Metric("fraction", "of that GPU's memory, or of the machine's or container's", limit=1.0),
    "predicted_memory_gib": Metric("GiB", "what peak_memory_gib was expected to be, before the start"),
    "test_accuracy": Metric("fraction", "on the test pictures; measured once, at the end", probed=False),
}


def unavailable(parameter: str, value: Scalar, resources: Resources) -> str | None:
    """Why these resources do not allow the value; None: they do."""
    devices, device = (resources.gpus, "GPU") if resources.gpus else (resources.cpus, "core")
    if resources.gpus == 0 and (parameter, value) in CUDA_ONLY:
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
    if parameter == "strategy" and value not in IN_ONE_PROCESS:
        needed = 2  # alone it is `single` with detours
    return _too_few(needed, device, devices) if needed > devices else None


COMPILERS = ("g++", "clang++", "c++")
CUDA_ONLY = (
    ("strategy", "data_parallel"),
    ("precision", "fp16"),
    ("loader", "device"),
    ("pin_memory", True),
    ("cuda_graphs", True),
)


def layout(config: Config, resources: Resources) -> Layout:
    """One process with everything, or the strategy's processes with equal shares."""
    settings = _settings(config)
    for name, value in vars(settings).items():
        if name == "strategy" and settings.world_size is not None:
            continue  # which says how many it needs
        if value is not None and (reason := unavailable(name, value, resources)):
            raise InfeasibleError(f"{name} {value}: {reason}")
    return layout_of(settings, resources)


def locate_data(data: Data) -> Data:
    """What was found, and where."""
    from trainables.pictures import cifar10

    return cifar10.locate(data)


def describe_data(data: Data) -> str:
    """Name and counts."""
    from trainables.pictures import cifar10

    return cifar10.describe(data)


def estimate(config: Config, data: Data) -> Cost:
    """Time a few steps in this process alone, whatever the strategy."""
    from trainables.foresight import estimate

    return estimate.cost(_settings(config), data)


def train(config: Config, worker: Worker) -> None:
    """Train VGG19 by the loop that all strategies share."""
    from trainables import loop

    _alone(config, worker, loop.fit)


def probe(config: Config, worker: Worker) -> None:
    """Train for some seconds, and forget what was learned."""
    from trainables import loop

    _alone(config, worker, loop.probe)


def test(config: Config, worker: Worker) -> Mapping[str, float]:
    """Accuracy on the test pictures."""
    from trainables import loop

    return _alone(config, worker, loop.test)


def explain(config: Config, metrics: Mapping[str, float], resources: Resources) -> Verdict | None:
    """By the stages of a step."""
    from trainables.measure import verdict

    return verdict.explain(_settings(config), metrics, resources)


def memory(config: Config, data: Data, resources: Resources) -> MemoryNeed | None:
    """By a pass without numbers, and two tiny ones with numbers that this machine has to do once."""
    from trainables.foresight import memory

    return memory.predicted(_settings(config), data, layout(config, resources))


def largest_batch(config: Config, data: Data, resources: Resources, available: int) -> int | None:
    """By as many passes as it takes to find it."""
    from trainables.foresight import memory

    return memory.largest_within(_settings(config), data, layout(config, resources), available)


def _alone(config: Config, worker: Worker, work: Callable[[Settings, Worker], T]) -> T:
    """Called on cores of its own, in a process that is afterwards as it was."""
    from trainables.machine import affinity, isolation
    from trainables.parallel import peers

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
    raise _out_of_memory(shortage, settings, worker)


def _out_of_memory(shortage: str, settings: Settings, worker: Worker) -> InfeasibleError:
    """With what was predicted."""
    from trainables.foresight import memory

    shape = Layout(worker.world_size, worker.resources.cpus, worker.resources.gpus)
    need = memory.predicted(settings, worker.data, shape)
    said = f"{shortage}; predicted were {need.total / 2**30:.1f}"
    if need.available is None:
        return InfeasibleError(said)
    # it took more than there is, whatever was predicted
    fraction = max(1.05, need.total / need.available)
    return InfeasibleError(f"{said} of {need.available / 2**30:.1f} GiB", {"peak_memory_fraction": fraction})


def _settings(config: Config) -> Settings:
    return Settings(**checked(config, PARAMETERS or {}))


def _too_few(needed: int, what: str, there: int) -> str:
    return f"needs {needed} {what}s, there {'is' if there == 1 else 'are'} {there}"
