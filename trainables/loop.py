"""THE training loop, one for every strategy: batches in, one Measurement an epoch out.

A step belongs to the strategy; data, schedule, meter, evaluation and checkpoints are these for all of them, so that a
difference in images per second is a difference of strategies.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from trainables import checkpoint
from trainables.build import build, device_of, network, network_of
from trainables.checkpoint import Checkpoint
from trainables.contract import InfeasibleError, Measurement, Worker
from trainables.foresight import memory
from trainables.foresight.traffic import traffic
from trainables.machine.devices import devices_of
from trainables.machine.lead import Lead
from trainables.measure.instruments import Instruments
from trainables.measure.throughput import MIN_WINDOWS
from trainables.parallel import ranks
from trainables.pictures.cifar10 import Indices, Pictures, split, test_pictures, training_pictures
from trainables.pictures.loaders import Batches, Plan, evaluation_batches, training_batches
from trainables.pictures.transfer import Batch
from trainables.settings import Settings
from trainables.step import arranged, autocast, learning_rate
from trainables.strategies import TrainStep, get_strategy

# Of training, warm-up included, after which a probe ends whose rate has not settled: once there is an interval that
# nobody disturbed, and in any case once there is a rate.
PROBE_SECONDS, MOST_PROBE_SECONDS = 8.0, 9.0
STEPS_BETWEEN_AGREEMENTS = 10  # of the ranks of a probe


def fit(settings: Settings, worker: Worker) -> None:
    """Train on this rank until the last epoch, or until a report is answered with False; from the checkpoint if any.

    Raises:
        InfeasibleError: the batch is larger than the data, there is no second step, or too little memory.
        FloatingPointError: the loss is no number any more; says since which step.
    """
    pictures = training_pictures(worker.data)
    # Read before anything that ranks do together: afterwards rank 0 may already have written the next one.
    last = checkpoint.load(worker.folder, network_of(settings, pictures.num_classes))
    ranks.meet(worker.world_size)
    if last and (not worker.report(last.measurement) or last.measurement.epoch >= worker.epochs):
        return
    first_epoch = last.measurement.epoch + 1 if last else 1
    with _trial(settings, worker, pictures, num_epochs=worker.epochs - first_epoch + 1) as trial:
        if last:
            trial.step.load_state_dict(last.state)
        for epoch in range(first_epoch, worker.epochs + 1):
            if not worker.report(_epoch(trial, epoch)):
                return


def probe(settings: Settings, worker: Worker) -> None:
    """Train on this rank until the rate has settled or the time is up, whatever comes first; report rates alone.

    Raises:
        InfeasibleError: as `fit`.
    """
    with _trial(settings, worker, training_pictures(worker.data), num_epochs=None) as trial:
        instruments, settings = trial.instruments, trial.settings
        trial.step.set_learning_rate(settings.learning_rate / 100)  # what is learned does not matter; no overflow does
        started = time.perf_counter()
        instruments.resume()
        for number, (images, labels) in enumerate(_endless(trial), start=1):
            trial.step(images, labels, instruments.timeline)
            instruments.step()
            if _enough(trial, number, time.perf_counter() - started):
                break
        instruments.pause()
        worker.report(Measurement(0, {**instruments.metrics(), **trial.step.metrics()}))


def test(settings: Settings, worker: Worker) -> dict[str, float]:
    """Accuracy of the last checkpoint on the test pictures.

    Raises:
        FileNotFoundError: there is no checkpoint.
    """
    pictures = test_pictures(worker.data)
    device = device_of(worker)
    last = checkpoint.load(worker.folder, network_of(settings, pictures.num_classes))
    if last is None:
        raise FileNotFoundError(f"{worker.folder}: no checkpoint to test")
    model = network(settings, pictures.num_classes, device)
    model.load_state_dict(last.state["model"])
    indices = np.arange(len(pictures.labels))
    batches = evaluation_batches(pictures, indices, device, worker.rank, worker.world_size)
    ranks.meet(worker.world_size)
    _, accuracy = evaluate(model, batches, settings, device, worker.world_size)
    return {"test_accuracy": accuracy}


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
    instruments: Instruments


@contextlib.contextmanager
def _trial(settings: Settings, worker: Worker, pictures: Pictures, num_epochs: int | None) -> Iterator[_Trial]:
    """Everything built and afterwards closed; `num_epochs` that will be trained, None: as long as it takes."""
    training, validation = split(pictures.labels, worker.data)
    share = get_strategy(settings.strategy).share(worker.rank, worker.world_size)
    plan = Plan(training, settings.batch_size, settings.seed, share)
    steps = None if num_epochs is None else num_epochs * plan.num_batches
    if worker.epochs * plan.num_batches < 2 and steps is not None:
        raise InfeasibleError(f"batch_size {settings.batch_size}: {worker.epochs} epoch of one step is all there is")
    device = device_of(worker)
    needed = memory.check(settings, pictures.num_classes, len(training), worker.world_size, device)
    networks = share.of * len(devices_of(settings, device))
    moved = traffic(settings, pictures.num_classes, device).of_step(settings.batch_size, networks)
    instruments = Instruments(settings, worker, device, pictures.num_classes, steps, needed.total, moved)
    batches = training_batches(
        settings.loader, pictures, plan, device, num_workers=settings.num_workers, pin_memory=settings.pin_memory
    )
    with (
        contextlib.closing(batches),
        contextlib.closing(instruments),
        ranks.group(settings.world_size, device),
    ):
        step = build(settings, pictures.num_classes, device)
        yield _Trial(settings, worker, device, pictures, validation, plan, batches, step, instruments)


def _epoch(trial: _Trial, epoch: int) -> Measurement:
    """Train, validate, keep."""
    started = time.perf_counter()
    train_loss = _train_epoch(trial, epoch)
    trained = time.perf_counter()
    metrics = {"train_loss": train_loss, "epoch_seconds": trained - started, **_validate(trial, epoch)}
    metrics |= {"evaluation_seconds": time.perf_counter() - trained, **trial.instruments.metrics()}
    metrics |= trial.step.metrics()
    metrics["checkpoint_seconds"] = _save(trial, Measurement(epoch, metrics))
    return Measurement(epoch, metrics)


def _train_epoch(trial: _Trial, epoch: int) -> float:
    """The mean loss of the epoch's steps; the device is waited for at its end."""
    settings, plan, instruments = trial.settings, trial.plan, trial.instruments
    # Dropout's stream depends on nothing before this epoch: a trial that goes on needs no state of it.
    torch.manual_seed(int(np.random.SeedSequence([settings.seed, epoch, trial.worker.rank]).generate_state(1)[0]))
    total_steps = trial.worker.epochs * plan.num_batches
    losses = torch.zeros(plan.num_batches, device=trial.device)
    instruments.resume()
    for i, (images, labels) in enumerate(_batches(trial, epoch)):
        done = (epoch - 1) * plan.num_batches + i
        trial.step.set_learning_rate(learning_rate(done, total_steps, settings.learning_rate))
        losses[i] = trial.step(images, labels, instruments.timeline)
        instruments.step()
    instruments.pause()
    return _finite_mean(ranks.summed(losses, trial.worker.world_size), epoch)


def _batches(trial: _Trial, epoch: int) -> Iterator[Batch]:
    """Those of an epoch; what comes before each of them, and is no transfer, is loading."""
    timeline, lead = trial.instruments.timeline, Lead(trial.device)
    for batch in trial.batches.epoch(epoch, timeline):
        timeline.mark("load")
        yield batch
        lead.step()


def _endless(trial: _Trial) -> Iterator[Batch]:
    """Epoch after epoch."""
    return itertools.chain.from_iterable(_batches(trial, epoch) for epoch in itertools.count(1))


def _enough(trial: _Trial, number: int, seconds: float) -> bool:
    """Whether all ranks may stop behind this step of a probe. They ask each other seldom: it costs time."""
    world_size = trial.worker.world_size
    if world_size > 1 and number % STEPS_BETWEEN_AGREEMENTS:
        return False
    instruments = trial.instruments
    late = seconds >= PROBE_SECONDS and instruments.quiet_windows >= MIN_WINDOWS
    mine = late or (seconds >= MOST_PROBE_SECONDS and instruments.windows >= 1) or instruments.settled()
    return bool(ranks.smallest([float(mine)], world_size, trial.device)[0])


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


def _save(trial: _Trial, measurement: Measurement) -> float:
    """Seconds that it took."""
    started = time.perf_counter()
    state = trial.step.state_dict()  # which all ranks may have to put together
    if trial.worker.rank == 0:
        fits = network_of(trial.settings, trial.pictures.num_classes)
        checkpoint.save(trial.worker.folder, Checkpoint(fits, measurement, state))
    return time.perf_counter() - started
