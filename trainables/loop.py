"""THE training loop, one for every strategy: batches in, one Measurement an epoch out.

A step belongs to the strategy; data, schedule, meter, evaluation and checkpoints are these for all of them, so that a
difference in images per second is a difference of strategies.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from trainables import checkpoint, ranks
from trainables.checkpoint import Checkpoint
from trainables.cifar10 import Indices, Pictures, split, test_pictures, training_pictures
from trainables.contract import InfeasibleError, Measurement, Worker
from trainables.footprint import Footprint
from trainables.loaders import Batch, Batches, Plan, evaluation_batches, training_batches
from trainables.settings import Settings
from trainables.step import FORMATS, arranged, autocast, learning_rate
from trainables.strategies import TrainStep, get_strategy
from trainables.throughput import ThroughputMeter
from trainables.vgg import vgg19

WARMUP_STEPS = 3


def fit(settings: Settings, worker: Worker) -> None:
    """Train on this rank until the last epoch, or until a report is answered with False; from the checkpoint if any.

    Raises:
        InfeasibleError: the batch is larger than the data, or there is no second step.
        FloatingPointError: the loss is no number any more; says since which step.
    """
    pictures = training_pictures(worker.data)
    training, validation = split(pictures.labels, worker.data)
    plan = Plan(training, settings.batch_size, settings.seed, worker.rank, worker.world_size)
    if worker.epochs * plan.num_batches < 2:
        raise InfeasibleError(f"batch_size {settings.batch_size}: {worker.epochs} epoch of one step is all there is")
    # Read before anything that ranks do together: afterwards rank 0 may already have written the next one.
    last = checkpoint.load(worker.folder, network_of(settings, pictures))
    if last and (not worker.report(last.measurement) or last.measurement.epoch >= worker.epochs):
        return
    device = device_of(worker)
    footprint = Footprint(device)
    step = build(settings, pictures.num_classes, device)
    if last:
        step.load_state_dict(last.state)
    batches = training_batches(
        settings.loader, pictures, plan, device, num_workers=settings.num_workers, pin_memory=settings.pin_memory
    )
    with contextlib.closing(batches):
        trial = _Trial(settings, worker, device, pictures, validation, plan, batches, step, footprint)
        _run(trial, first_epoch=last.measurement.epoch + 1 if last else 1)


def test(settings: Settings, worker: Worker) -> dict[str, float]:
    """Accuracy of the last checkpoint on the test pictures.

    Raises:
        FileNotFoundError: there is no checkpoint.
    """
    pictures = test_pictures(worker.data)
    device = device_of(worker)
    last = checkpoint.load(worker.folder, network_of(settings, pictures))
    if last is None:
        raise FileNotFoundError(f"{worker.folder}: no checkpoint to test")
    model = _network(settings, pictures.num_classes, device)
    model.load_state_dict(last.state["model"])
    indices = np.arange(len(pictures.labels))
    batches = evaluation_batches(pictures, indices, device, worker.rank, worker.world_size)
    _, accuracy = evaluate(model, batches, settings, device, worker.world_size)
    return {"test_accuracy": accuracy}


def build(settings: Settings, num_classes: int, device: torch.device) -> TrainStep:
    """The strategy's step around a new network, whose weights depend on the seed alone."""
    torch.manual_seed(settings.seed)
    return get_strategy(settings.strategy).build(_network(settings, num_classes, device), settings, device)


def _network(settings: Settings, num_classes: int, device: torch.device) -> nn.Module:
    network = vgg19(num_classes, width=settings.width, head=settings.head)
    network.to(device)
    return network.to(memory_format=FORMATS[settings.memory_format])


def network_of(settings: Settings, pictures: Pictures) -> dict[str, Any]:
    """What a checkpoint's state fits."""
    return {
        "width": settings.width,
        "head": settings.head,
        "num_classes": pictures.num_classes,
        "optimizer": settings.optimizer,
    }


def device_of(worker: Worker) -> torch.device:
    """This process's own device: the GPU of its place on this node, if the trial has GPUs.

    Raises:
        InfeasibleError: the trial has GPUs, but there is no CUDA here.
    """
    if worker.resources.gpus == 0:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise InfeasibleError("the trial was given a GPU, but PyTorch finds no CUDA device")
    # Ray Train shows all of a group's GPUs on a node to each of its processes; others show each its own, number 0.
    place = int(os.environ.get("LOCAL_RANK", worker.rank)) % torch.cuda.device_count()
    torch.cuda.set_device(place)
    torch.backends.cudnn.benchmark = True  # all batches have one shape
    return torch.device("cuda", place)


@torch.no_grad()
def evaluate(
    model: nn.Module, batches: Iterable[Batch], settings: Settings, device: torch.device, world_size: int = 1
) -> tuple[float, float]:
    """Cross-entropy (no smoothing) and accuracy over the batches of all ranks."""
    model.eval()
    sums = torch.zeros(3, dtype=torch.float64, device=device)
    for images, labels in batches:
        with autocast(settings, device):
            logits = model(arranged(images, settings)).float()
        loss = nn.functional.cross_entropy(logits, labels, reduction="sum")
        correct = (logits.argmax(1) == labels).sum()
        sums += torch.stack([loss.double(), correct.double(), torch.full_like(loss, len(labels)).double()])
    model.train()
    loss_sum, num_correct, count = ranks.total(sums.tolist(), world_size, device)
    return loss_sum / count, num_correct / count


@dataclass(frozen=True)
class _Trial:
    """What the epochs of one trial have in common, on this rank."""

    settings: Settings
    worker: Worker
    device: torch.device
    pictures: Pictures
    validation: Indices
    plan: Plan
    batches: Batches
    step: TrainStep
    footprint: Footprint

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def _run(trial: _Trial, first_epoch: int) -> None:
    worker = trial.worker
    steps_left = (worker.epochs - first_epoch + 1) * trial.plan.num_batches
    warmup_steps = min(WARMUP_STEPS, steps_left // 3)
    meter = ThroughputMeter(warmup_steps=warmup_steps, synchronize=trial.synchronize)
    for epoch in range(first_epoch, worker.epochs + 1):
        started = time.perf_counter()
        train_loss = _train_epoch(trial, meter, epoch)
        trained = time.perf_counter()
        metrics = {"train_loss": train_loss, "epoch_seconds": trained - started, **_validate(trial, epoch)}
        metrics |= {"evaluation_seconds": time.perf_counter() - trained, **_rates(meter), **_memory(trial)}
        if worker.rank == 0:
            metrics["checkpoint_seconds"] = _save(trial, Measurement(epoch, metrics))
        if not worker.report(Measurement(epoch, metrics)):
            return


def _train_epoch(trial: _Trial, meter: ThroughputMeter, epoch: int) -> float:
    """The mean loss of the epoch's steps; the device is waited for at its end."""
    settings, plan = trial.settings, trial.plan
    # Dropout's stream depends on nothing before this epoch: a trial that goes on needs no state of it.
    torch.manual_seed(int(np.random.SeedSequence([settings.seed, epoch, plan.rank]).generate_state(1)[0]))
    total_steps = trial.worker.epochs * plan.num_batches
    losses = torch.zeros(plan.num_batches, device=trial.device)
    meter.resume()
    for i, (images, labels) in enumerate(trial.batches.epoch(epoch)):
        done = (epoch - 1) * plan.num_batches + i
        trial.step.set_learning_rate(learning_rate(done, total_steps, settings.learning_rate))
        losses[i] = trial.step(images, labels)
        meter.step(settings.batch_size)
    meter.pause()
    return _finite_mean(ranks.mean(losses, trial.worker.world_size), epoch)


def _finite_mean(losses: Tensor, epoch: int) -> float:
    values = losses.tolist()
    for i, value in enumerate(values, start=1):
        if not math.isfinite(value):
            raise FloatingPointError(f"the training loss is {value} in epoch {epoch} from step {i} of {len(values)} on")
    return math.fsum(values) / len(values)


def _validate(trial: _Trial, epoch: int) -> dict[str, float]:
    trial.step.gather()
    worker = trial.worker
    batches = evaluation_batches(trial.pictures, trial.validation, trial.device, worker.rank, worker.world_size)
    loss, accuracy = evaluate(trial.step.model, batches, trial.settings, trial.device, worker.world_size)
    if not math.isfinite(loss):
        raise FloatingPointError(f"the validation loss is {loss} after epoch {epoch}")
    return {"val_loss": loss, "val_accuracy": accuracy}


def _rates(meter: ThroughputMeter) -> dict[str, float]:
    """By this rank's clock: the ranks keep step. Nothing if all steps so far were warm-up."""
    try:
        throughput = meter.result()
    except ValueError:
        return {}
    rates = {
        "images_per_second": throughput.images_per_second,
        "throughput_windows": float(throughput.num_windows),
        "throughput_seconds": throughput.seconds,
    }
    spread = throughput.images_per_second_std
    return rates if spread is None else {**rates, "images_per_second_std": spread}


def _memory(trial: _Trial) -> dict[str, float]:
    """The trial's peak: of resident memory over its processes, or of the GPU that is fullest."""
    peak, available = (
        math.nan if x is None else x for x in (trial.footprint.peak_gib(), trial.footprint.available_gib())
    )
    world_size = trial.worker.world_size
    if trial.device.type == "cuda":
        peak, fraction = ranks.largest([peak, peak / available], world_size, trial.device)
    else:
        (peak,) = ranks.total([peak], world_size, trial.device)
        fraction = peak / available
    known = {"peak_memory_gib": peak, "peak_memory_fraction": fraction}
    return {name: value for name, value in known.items() if not math.isnan(value)}


def _save(trial: _Trial, measurement: Measurement) -> float:
    """Seconds that it took."""
    started = time.perf_counter()
    network: Mapping[str, Any] = network_of(trial.settings, trial.pictures)
    checkpoint.save(trial.worker.folder, Checkpoint(network, measurement, trial.step.state_dict()))
    return time.perf_counter() - started
