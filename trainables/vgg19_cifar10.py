"""VGG19 trained on CIFAR-10, or on other pictures of its form: the parameters, the metrics, the layout of a trial."""

from __future__ import annotations

from collections.abc import Mapping

from trainables.contract import (
    Config,
    Cost,
    Data,
    InfeasibleError,
    Layout,
    Metric,
    Parameter,
    Resources,
    Scalar,
    Worker,
)
from trainables.settings import Settings, checked

PARAMETERS: Mapping[str, Parameter] | None = {
    "batch_size": Parameter("int", 128, "pictures per step, over all processes", low=1),
    "learning_rate": Parameter(
        "float", 0.1, "the highest; reached after a fifth of the steps, zero at the end", low=1e-8
    ),
    "optimizer": Parameter("str", "sgd", "sgd has Nesterov momentum", choices=("sgd", "adamw")),
    "momentum": Parameter("float", 0.9, "of sgd; the first beta of adamw", low=0.0, high=0.9999),
    "weight_decay": Parameter("float", 5e-4, "of weights; normalisation and biases do not decay", low=0.0),
    "label_smoothing": Parameter("float", 0.1, "of the training loss", low=0.0, high=0.9999),
    "seed": Parameter("int", 0, "of weights, order, augmentation and dropout; not of the validation split", low=0),
    "width": Parameter("float", 1.0, "channels as a multiple of VGG19's own", low=0.01),
    "head": Parameter("str", "average_pooling", "classifier", choices=("average_pooling", "fully_connected")),
    "strategy": Parameter("str", "single", "how devices share the work", choices=("single", "ddp")),
    "world_size": Parameter("int", None, "processes of ddp; null: one per GPU, on a CPU two", low=2),
    "threads": Parameter("int", None, "per process; null: all cores that it has", low=1),
    "precision": Parameter("str", "fp32", "fp32, or autocast to 16 bits", choices=("fp32", "bf16", "fp16")),
    "memory_format": Parameter("str", "contiguous", "of pictures", choices=("contiguous", "channels_last")),
    "loader": Parameter(
        "str", "memory", "a picture at a time, a batch at once, or on the GPU", choices=("workers", "memory", "device")
    ),
    "num_workers": Parameter("int", 0, "processes of the loader `workers`, per process of the trial", low=0),
    "pin_memory": Parameter("bool", False, "copy to the GPU from pinned memory"),
}

METRICS: Mapping[str, Metric] | None = {
    "val_accuracy": Metric("fraction", "on the validation pictures, after the epoch"),
    "val_loss": Metric("nats", "cross-entropy on the validation pictures"),
    "train_loss": Metric("nats", "label-smoothed cross-entropy, mean over the epoch's steps"),
    "images_per_second": Metric("images/s", "of the whole job, waiting for data included; no warm-up, no evaluation"),
    "images_per_second_std": Metric("images/s", "standard deviation over the throughput windows"),
    "throughput_windows": Metric("windows", "that the standard deviation is over"),
    "throughput_seconds": Metric("s", "of training that images_per_second is over"),
    "epoch_seconds": Metric("s", "of the epoch's training"),
    "evaluation_seconds": Metric("s", "of the evaluation after it"),
    "checkpoint_seconds": Metric("s", "of writing the checkpoint; absent from an epoch that is reported again"),
    "peak_memory_gib": Metric("GiB", "so far; tensors on the fullest GPU, or what is resident in all processes"),
    "peak_memory_fraction": Metric("fraction", "of that GPU's memory, or of the machine's or container's"),
    "test_accuracy": Metric("fraction", "on the test pictures; measured once, at the end"),
}


def unavailable(parameter: str, value: Scalar, resources: Resources) -> str | None:
    """Why these resources do not allow the value; None: they do."""
    devices, device = (resources.gpus, "GPU") if resources.gpus else (resources.cpus, "core")
    if resources.gpus == 0 and (parameter, value) in CUDA_ONLY:
        return "needs a CUDA device"
    if parameter == "threads" and int(value) > resources.cpus:
        return _too_few(int(value), "core", resources.cpus)
    needed = int(value) if parameter == "world_size" else 2 if (parameter, value) == ("strategy", "ddp") else 0
    return _too_few(needed, device, devices) if needed > devices else None


CUDA_ONLY = (("precision", "fp16"), ("loader", "device"), ("pin_memory", True))


def layout(config: Config, resources: Resources) -> Layout:
    """One process with everything, or the strategy's processes with equal shares."""
    settings = _settings(config)
    for name, value in vars(settings).items():
        if value is not None and (reason := unavailable(name, value, resources)):
            raise InfeasibleError(f"{name} {value}: {reason}")
    processes = _processes(settings, resources)
    cpus = max(1, resources.cpus // processes)
    if settings.threads is not None and settings.threads > cpus:
        raise InfeasibleError(f"threads {settings.threads}: each of {processes} processes has {cpus}")
    return Layout(processes, cpus_per_process=cpus, gpus_per_process=1 if resources.gpus else 0)


def locate_data(data: Data) -> Data:
    """What was found, and where."""
    from trainables import cifar10

    return cifar10.locate(data)


def describe_data(data: Data) -> str:
    """Name and counts."""
    from trainables import cifar10

    return cifar10.describe(data)


def estimate(config: Config, data: Data) -> Cost:
    """Time a few steps in this process alone, whatever the strategy."""
    from trainables import estimate

    return estimate.cost(_settings(config), data)


def train(config: Config, worker: Worker) -> None:
    """Train VGG19 by the loop that all strategies share."""
    from trainables import isolation, loop

    settings = _settings(config)
    isolation.isolated(lambda: loop.fit(settings, worker), threads=settings.threads or worker.resources.cpus)


def test(config: Config, worker: Worker) -> Mapping[str, float]:
    """Accuracy on the test pictures."""
    from trainables import isolation, loop

    settings = _settings(config)
    return isolation.isolated(lambda: loop.test(settings, worker), threads=settings.threads or worker.resources.cpus)


def _settings(config: Config) -> Settings:
    return Settings(**checked(config, PARAMETERS or {}))


def _processes(settings: Settings, resources: Resources) -> int:
    """One, or for ddp `world_size`: by default all GPUs; on a CPU two, where more only take each other's cores."""
    if settings.strategy == "single":
        if settings.world_size is not None:
            raise InfeasibleError(f"world_size {settings.world_size}: strategy single is one process")
        return 1
    return settings.world_size or resources.gpus or 2


def _too_few(needed: int, what: str, there: int) -> str:
    return f"needs {needed} {what}s, there {'is' if there == 1 else 'are'} {there}"
