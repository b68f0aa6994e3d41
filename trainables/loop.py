"""The training loop that all strategies share: batches in, one Measurement per epoch out.

A strategy only computes steps. Data, schedule, meter, evaluation and checkpoints are the same for all, so that a
difference in rate is a difference of strategies.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from trainables import checkpoint
from trainables.build import build, device_of, network, network_of
from trainables.checkpoint import Checkpoint
from trainables.contract import DataError, InfeasibleError, Measurement, Worker
from trainables.kept_samples import as_text
from trainables.machine.devices import devices_of
from trainables.machine.steps_in_flight import StepsInFlight
from trainables.measure.instruments import Instruments, StepWork
from trainables.measure.probe_end import may_stop
from trainables.measure.sample_mean import OfSamples, mean_with_interval, of_each_sample, value_of_each
from trainables.metrics import training_seconds
from trainables.parallel import ranks
from trainables.plan import Batch, Batches, Plan, share_of
from trainables.prediction import memory_need
from trainables.prediction.flops import training_flops_per_sample
from trainables.prediction.memory_traffic import memory_traffic
from trainables.sample_shape import SampleShape
from trainables.seeding import seed_process
from trainables.settings import Settings
from trainables.step import Step, arranged, autocast, in_floats, learning_rate
from trainables.workload import Views, num_samples, workload_of
from trainables.workloads.sample_values import MOST_SAMPLES, first_samples, of_samples


@dataclass(frozen=True)
class Training:
    """Everything that the epochs of one trial share, on this rank."""

    settings: Settings
    worker: Worker
    device: torch.device
    shape: SampleShape
    plan: Plan
    batches: Batches
    step: Step
    instruments: Instruments
    checkpoints: checkpoint.Schedule


def fit(settings: Settings, worker: Worker) -> None:
    """Train on this rank, from the checkpoint if there is one, to the last epoch or until a report returns False.

    Raises:
        InfeasibleError: the batch is larger than the data, there is no second step, or too little memory.
        FloatingPointError: the loss is not finite; the message names the first such step.
    """
    shape = _opened(settings, worker)
    # loaded before the ranks meet: after that rank 0 may already write the next one
    last = checkpoint.load(worker.folder, network_of(settings, shape))
    ranks.meet(worker.world_size)
    if last and (not worker.report(last.measurement) or last.measurement.epoch >= worker.epochs):
        return
    first_epoch = last.measurement.epoch + 1 if last else 1
    with _training(settings, worker, shape, num_epochs=worker.epochs - first_epoch + 1) as training:
        before = None
        if last:
            training.step.load_state_dict(last.state)
            before = last.measurement
        for epoch in range(first_epoch, worker.epochs + 1):
            before = _epoch(training, epoch, before)
            if not worker.report(before):
                return


def probe(settings: Settings, worker: Worker) -> None:
    """Train on this rank until the rate has settled or the time is up; report rates only.

    Raises:
        InfeasibleError: see `fit`.
    """
    with open_probe(settings, worker) as (training, batches):
        instruments, step = training.instruments, training.step
        started = time.perf_counter()
        instruments.resume()
        for number, (inputs, targets) in enumerate(batches, start=1):
            step(inputs, targets, instruments.timeline)
            instruments.step()
            if may_stop(instruments, worker, training.device, number, time.perf_counter() - started):
                break
        instruments.pause()
        metrics = {**instruments.metrics(), **step.metrics()}
        if settings.source:
            _check_measures(training, *(training.batches.plain or (inputs, targets)))
        worker.report(Measurement(0, metrics))


@contextlib.contextmanager
def open_probe(settings: Settings, worker: Worker) -> Iterator[tuple[Training, Iterator[Batch]]]:
    """Build everything of a training that is only timed, with the batches of one epoch after another without end."""
    with _training(settings, worker, _opened(settings, worker), num_epochs=None) as training:
        training.step.set_learning_rate(settings.learning_rate / 100)  # the loss must not overflow
        yield training, itertools.chain.from_iterable(_batches(training, epoch) for epoch in itertools.count(1))


def test(settings: Settings, worker: Worker) -> dict[str, float]:
    """Return the validation metrics' counterparts, such as `test_accuracy`, of the last checkpoint on the test samples.

    Raises:
        FileNotFoundError: there is no checkpoint.
    """
    workload, shape, device = workload_of(settings), _opened(settings, worker), device_of(worker)
    seed_process(settings.seed)  # as in the training: a file may draw more than what the checkpoint holds
    model = network(settings, shape, device)
    batches = workload.evaluation_batches(settings, worker.data, "test", device, worker.rank, worker.world_size)
    ranks.meet(worker.world_size)  # also waits until rank 0 has written the checkpoint
    last = checkpoint.load(worker.folder, network_of(settings, shape))
    if last is None:
        raise FileNotFoundError(f"{worker.folder}: no checkpoint to test")
    model.load_state_dict(last.state["model"])
    views = workload.VIEWS if getattr(worker, "all_views", False) else None
    found = _means(evaluate(model, batches, settings, device, worker.rank, worker.world_size, views))
    return {name.replace("val_", "test_", 1): value for name, value in found.items()}


@torch.no_grad()
def evaluate(
    model: nn.Module,
    batches: Iterable[Batch],
    settings: Settings,
    device: torch.device,
    rank: int,
    world_size: int,
    views: Views | None = None,
) -> dict[str, OfSamples]:
    """Return the workload's measures of each sample of all ranks, in the order of the samples.

    With `views` also those of averaged outputs, such as `val_accuracy_flip`.
    """
    workload, weights, steps_in_flight = workload_of(settings), views.weights if views else {}, StepsInFlight(device)
    modes = [(module, module.training) for module in model.modules()]  # a frozen one may be in evaluation mode
    model.eval()
    found: dict[str, list[Tensor]] = {f"{name}{end}": [] for end in _ends(weights) for name in workload.MEASURES}
    for inputs, targets in batches:
        with autocast(settings, device):
            versions = views.of(inputs) if views else [inputs]
            outputs = [in_floats(model(arranged(version, settings))) for version in versions]
        means = [sum(w * x for w, x in zip(each, outputs, strict=True)) for each in weights.values()]
        for end, mean in zip(_ends(weights), [outputs[0], *means], strict=True):
            for name, values in workload.measures(mean, targets).items():
                found[f"{name}{end}"].append(of_each_sample(values.to(device), num_samples(targets)))
        steps_in_flight.step()
    for module, mode in modes:
        module.training = mode
    nothing = torch.zeros(0, 2, dtype=torch.float64, device=device)
    return {
        name: ranks.interleaved(torch.cat([nothing, *of_batches]), rank, world_size).cpu().numpy()
        for name, of_batches in found.items()
    }


def _ends(weights: Iterable[str]) -> list[str]:
    """Return the ends of the names of metrics: of the inputs as they are, then of the averages of views."""
    return ["", *(f"_{name}" for name in weights)]


def _means(found: Mapping[str, OfSamples]) -> dict[str, float]:
    """Return the means of the measures, and the ends of their intervals; nothing where there are no samples."""
    measured = {name: each for name, each in found.items() if len(each)}
    return {key: value for name, each in measured.items() for key, value in mean_with_interval(name, each).items()}


def _check_measures(training: Training, inputs: Any, targets: Any) -> None:
    """Measure a few samples of a batch: a mistake in a file's `measures` is found before an epoch is trained.

    Not the validation samples, which probes would have to load.
    """
    training.step.gather()
    samples = num_samples(targets)
    if samples:  # a server has none
        few = inputs, targets
        if all(of_samples(few, samples)):
            few = first_samples(few, MOST_SAMPLES + 1, samples)  # more than are measured alone
        evaluate(training.step.model, [few], training.settings, training.device, rank=0, world_size=1)


def _opened(settings: Settings, worker: Worker) -> SampleShape:
    """Return the shape of a sample; the training samples are then read or in a cache."""
    workload = workload_of(settings)
    workload.training_indices(worker.data)
    return workload.sample_shape(settings, worker.data)


def _step_work(settings: Settings, worker: Worker, job: memory_need.Job, networks: int) -> StepWork:
    """Count the work of a step on `networks` copies of the network.

    Raises:
        InfeasibleError: it certainly needs more memory than there is.
    """
    workload, batch_size = workload_of(settings), settings.batch_size
    need = memory_need.check(settings, job)
    flops, traffic = training_flops_per_sample(settings, job.shape), memory_traffic(settings, job.shape, job.device)
    return StepWork(
        unit=workload.UNIT,
        units=batch_size * workload.units_per_sample(worker.data),
        flops=None if flops is None else batch_size * flops,
        moved_bytes=None if traffic is None else traffic.of_step(batch_size, networks),
        peak_bytes=None if need is None else need.total,
    )


@contextlib.contextmanager
def _training(settings: Settings, worker: Worker, shape: SampleShape, num_epochs: int | None) -> Iterator[Training]:
    """Build everything and close it afterwards; `num_epochs` None: the number is not known beforehand."""
    device = device_of(worker)
    indices = workload_of(settings).training_indices(worker.data)
    kept = workload_of(settings).kept_count(worker.data, device.type)
    job = memory_need.Job(shape, len(indices), worker.world_size, device, kept)
    settings = memory_need.resolved(settings, job)
    workload, share = workload_of(settings), share_of(settings.strategy, worker.rank, worker.world_size)
    plan = Plan(indices, settings.batch_size, settings.seed, share)
    steps = None if num_epochs is None else num_epochs * plan.num_batches
    if worker.epochs * plan.num_batches < 2 and steps is not None:
        raise InfeasibleError(f"batch_size {settings.batch_size}: {worker.epochs} epoch of one step is all there is")
    work = _step_work(settings, worker, job, share.of * len(devices_of(settings, device)))
    with (
        contextlib.closing(workload.training_batches(settings, worker.data, plan, device)) as batches,
        contextlib.closing(Instruments(settings, worker, device, steps, work)) as instruments,
        ranks.group(settings.world_size, device),
    ):
        step = build(settings, shape, device)
        _check_equal_lengths(len(plan.indices), worker.world_size, device)
        yield Training(settings, worker, device, shape, plan, batches, step, instruments, checkpoint.Schedule())


def _check_equal_lengths(train_samples: int, world_size: int, device: torch.device) -> None:
    """Check that all ranks have equally many training samples; else they would wait for each other forever.

    Raises:
        DataError: they have not.
    """
    fewest, most = (ranks.reduced([train_samples], end, world_size, device)[0] for end in ("min", "max"))
    if fewest != most:
        raise DataError(f"the ranks have different numbers of training samples, {fewest:,.0f} to {most:,.0f}")


def _epoch(training: Training, epoch: int, before: Measurement | None) -> Measurement:
    """Train, validate and, if one is due, write the checkpoint; `before`: the measurement of the epoch before."""
    worker, settings, step = training.worker, training.settings, training.step
    started = time.perf_counter()
    train_loss = _train_epoch(training, epoch)
    trained = time.perf_counter()
    step.gather()
    of_samples: dict[str, OfSamples] = {}
    if epoch % getattr(worker, "evaluate_every", 1) == 0 or epoch == worker.epochs:
        batches = workload_of(settings).evaluation_batches(
            settings, worker.data, "validation", training.device, worker.rank, worker.world_size
        )
        ranks.meet(worker.world_size)  # one may have read its pictures for long
        of_samples = evaluate(step.model, batches, settings, training.device, worker.rank, worker.world_size)
    found = _means(of_samples)
    for name, value in found.items():
        if not math.isfinite(value):
            raise FloatingPointError(f"{name} is {value} after epoch {epoch}")
    evaluated = time.perf_counter()
    metrics = {"train_loss": train_loss, "epoch_seconds": trained - started, **found}
    metrics |= {"evaluation_seconds": evaluated - trained, **training.instruments.metrics(), **step.metrics()}
    # trials are compared after the last epoch only
    of_last = of_samples if found and epoch == worker.epochs else {}
    kept = {name: as_text(value_of_each(each)) for name, each in of_last.items()}
    measurement, started = Measurement(epoch, metrics, kept), time.perf_counter()
    metrics["training_seconds"] = training_seconds(measurement, before, worker.epochs)
    if _is_checkpoint_due(training, epoch):
        with training.checkpoints.writing():
            _save(training, measurement)
    metrics["checkpoint_seconds"] = time.perf_counter() - started
    return measurement


def _is_checkpoint_due(training: Training, epoch: int) -> bool:
    """Return the same answer on all ranks, which put the state together; the last epoch always has a checkpoint.

    Written beside the next epoch it would take its cores, and so change the rates that are measured.
    """
    worker = training.worker
    due = epoch == worker.epochs or training.checkpoints.is_due()
    return bool(ranks.reduced([due], "max", worker.world_size, training.device)[0])


def _save(training: Training, measurement: Measurement) -> None:
    worker, state = training.worker, training.step.state_dict()  # which all ranks may have to put together
    if worker.rank == 0:
        fits = network_of(training.settings, training.shape)
        checkpoint.save(worker.folder, Checkpoint(fits, measurement, state))


def _train_epoch(training: Training, epoch: int) -> float:
    """Return the mean loss of the epoch's steps; the device is waited for at its end."""
    settings, plan, instruments, worker = training.settings, training.plan, training.instruments, training.worker
    # random streams, such as dropout's, depend on nothing before this epoch: a resumed trial needs no state of them
    seed_process(int(np.random.SeedSequence([settings.seed, epoch, worker.rank]).generate_state(1)[0]))
    total_steps = worker.epochs * plan.num_batches
    losses = torch.zeros(plan.num_batches, device=training.device)
    on_step = getattr(worker, "on_step", None)
    instruments.resume()
    for i, (inputs, targets) in enumerate(_batches(training, epoch)):
        done = (epoch - 1) * plan.num_batches + i
        training.step.set_learning_rate(learning_rate(done, total_steps, settings))
        losses[i] = training.step(inputs, targets, instruments.timeline)
        instruments.step()
        if on_step is not None:
            on_step(epoch, i + 1, plan.num_batches)
    instruments.pause()
    values = ranks.summed(losses, worker.world_size).tolist()
    for i, value in enumerate(values, start=1):
        if not math.isfinite(value):
            raise FloatingPointError(f"the training loss is {value} in epoch {epoch} from step {i} of {len(values)} on")
    return math.fsum(values) / len(values)


def _batches(training: Training, epoch: int) -> Iterator[Batch]:
    """Yield an epoch's batches; the time before each, apart from transfer, counts as loading."""
    timeline, steps_in_flight = training.instruments.timeline, StepsInFlight(training.device)
    for batch in training.batches.epoch(epoch, timeline):
        timeline.mark("load")
        yield batch
        steps_in_flight.step()
