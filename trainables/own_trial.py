"""Trial as a training loop of a user's own sees it: epochs, steps to measure, reports."""

from __future__ import annotations

import itertools
import math
import reprlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sized
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from trainables import checkpoint
from trainables.build import device_of
from trainables.checkpoint import Checkpoint
from trainables.contract import Cost, InfeasibleError, Measurement, OwnCodeError, Stage, Worker
from trainables.kept_samples import as_text
from trainables.measure.instruments import Instruments, StepWork
from trainables.measure.probe_end import may_stop
from trainables.measure.sample_mean import OfSamples, mean_with_interval, of_each_sample, value_of_each
from trainables.metrics import training_seconds
from trainables.settings import Settings

PROBE_EPOCHS = 1000  # more than a probe can reach

Batch = TypeVar("Batch")
Units = int | Callable[[Any], int] | None


class StepListener(Protocol):
    """Listener of the steps of a loop, see `trainables.own_turns`."""

    def resume(self) -> None:
        """Called before steps begin."""

    def pause(self) -> None:
        """Hear that the loop does something else."""

    def step(self, units: int) -> None:
        """Hear of a step of the whole job; may raise ProbeEnd."""


class ProbeEnd(BaseException):
    """Raised in a user's loop at the end of a probe. `except Exception` does not catch it."""


class OwnTrial:
    """The second argument of a user's `train(config, trial)`."""

    def __init__(
        self,
        settings: Settings,
        worker: Worker,
        unit: str,
        metrics: Iterable[str],
        *,
        probe: bool,
        most_seconds: float | None = None,
        most_steps: int | None = None,
    ) -> None:
        """`metrics`: of each report; `probe`: end when the rate is known, or after `most_seconds`.

        `most_steps`: after which `steps` ends each epoch, for a check.
        """
        self._most_seconds, self._most_steps = most_seconds, most_steps
        self._settings, self._worker, self._unit, self.probe = settings, worker, unit, probe
        self.metrics = tuple(metrics)
        self.folder: Path = worker.folder  # of the trial, shared by its processes
        self.root: str | None = worker.data.root  # `data.root` of the space file
        self.device: torch.device = device_of(worker)
        self.rank, self.world_size = worker.rank, worker.world_size
        self.num_epochs: int = PROBE_EPOCHS if probe else worker.epochs
        last = None if probe else checkpoint.load(worker.folder, self._network)
        self.checkpoint: Any = last.state["own"] if last else None  # of the last report; None: start from the beginning
        self._last = last.measurement if last else None  # the last one reported
        self._epoch = self._last.epoch if self._last else 0
        self._active, self._going_on = False, True
        self._instruments: Instruments | None = None
        self._steps, self._units, self._steps_per_epoch = 0, 0, 0
        self._started, self._seconds, self._resumed = math.inf, 0.0, 0.0
        self._marked = False
        self._in_epoch = 0  # steps
        self._in_use: int | None = None  # units of the batch that `steps` yielded, until its step is counted
        self._on_step = None if probe else getattr(worker, "on_step", None)
        self.turns: StepListener | None = None  # hears of the steps, in place of the end of a probe

    def epochs(self) -> Iterator[int]:
        """Yield the epochs after the checkpoint, up to `num_epochs` or until the trial is ended."""
        epoch = self.next_epoch
        while self._going_on and epoch <= self.num_epochs:
            yield epoch
            if not self.probe and self._going_on and self._epoch != epoch:
                raise OwnCodeError(f"epoch {epoch} ended without trial.report({epoch}, ...)")
            epoch += 1

    def steps(self, loader: Iterable[Batch], units: Units = None) -> Iterator[Batch]:
        """Yield the batches of an epoch and measure the steps that they are used in.

        Args:
            loader: batches, in any form.
            units: of a step in this process, such as its tokens, or a function of the batch; by default its samples.
        """
        try:
            length = len(loader) if isinstance(loader, Sized) else None
        except TypeError:  # a DataLoader of an IterableDataset
            length = None
        self.resume(length)
        try:
            for batch in itertools.islice(loader, self._most_steps):
                self.loaded()
                self._in_use = units_of(batch, units)
                yield batch
                self._count_step()
                self.resume(length)  # after a report, where one iterator goes through several epochs
        finally:
            self._in_use = None
            self.pause()

    def _count_step(self) -> None:
        """Count the step of the batch that `steps` yielded last, once."""
        if (units := self._in_use) is not None:
            self._in_use = None
            self.step(units)

    def report(self, epoch: int, checkpoint: Any = None, **metrics: float | Tensor) -> bool:
        """Report an epoch; False: the trial is ended, and `train` must return.

        Args:
            epoch: as `epochs` yielded it.
            checkpoint: tensors, NumPy's arrays, numbers and strings, in dictionaries or lists; a later process finds
                it in `trial.checkpoint`, and goes on after this epoch. Without it, an interrupted trial starts again.
            metrics: those that METRICS declares, and `train_loss` if wanted. A tensor with a row for each validation
                sample gives the mean and its 95% interval, and trials are then compared sample by sample.

        Raises:
            OwnCodeError: metrics are missing or not declared, or the checkpoint has something else.
            FloatingPointError: one is not finite.
        """
        if not self._going_on:
            raise OwnCodeError(
                f"trial.report({epoch}, ...) after the trial has ended: train must return when it gives False"
            )
        self.pause()
        self._check_trained(epoch)
        if self.probe:  # the names alone: so short a training may give no finite number
            self._check_names(metrics)
            self._in_epoch = 0
            return True
        values, of_samples = measured(metrics, f"trial.report({epoch}, ...)")
        self._check(epoch, values, metrics)
        self._epoch = epoch
        assert self._instruments is not None
        found = {**values, "epoch_seconds": self._seconds, **self._instruments.metrics()}
        kept = {name: as_text(value_of_each(each)) for name, each in of_samples.items()}
        measurement = Measurement(epoch, found, kept if epoch == self.num_epochs else {})
        found["training_seconds"] = training_seconds(measurement, self._last, self.num_epochs)
        self._last = measurement
        self._seconds, self._in_epoch = 0.0, 0
        started = time.perf_counter()
        if checkpoint is not None and self.rank == 0:
            _save(self.folder, Checkpoint(self._network, measurement, {"own": checkpoint}))
        self.checkpoint = checkpoint
        found["checkpoint_seconds"] = time.perf_counter() - started
        self._going_on = self._worker.report(measurement) and epoch < self.num_epochs
        return self._going_on

    # What callbacks of other libraries use in place of `steps`.

    def resume(self, steps_per_epoch: int | None = None) -> None:
        """Start measuring, at the beginning of an epoch or after something that is not training."""
        if self._active:
            return
        if self._instruments is None:
            self._steps_per_epoch = steps_per_epoch or 0
            epochs = self.num_epochs - self._epoch
            steps = None if self.probe or steps_per_epoch is None else epochs * steps_per_epoch
            work = StepWork(self._unit, 1, None, None, None)
            self._instruments = Instruments(self._settings, self._worker, self.device, steps, work)
            self._started = time.perf_counter()
        self._active, self._resumed = True, time.perf_counter()
        self._marked = False
        self._instruments.resume()
        if self.turns is not None:
            self.turns.resume()

    def pause(self) -> None:
        """Stop measuring until `resume` or the next batch of `steps`, as before a validation within its loop."""
        self._count_step()
        if self._active and self._instruments is not None:
            self._instruments.pause()
            self._active = False
            if self.turns is not None:
                self.turns.pause()
            self._seconds += time.perf_counter() - self._resumed

    def loaded(self) -> None:
        """Say that the batch of a step is there."""
        self.mark("load")
        self._marked = False

    def mark(self, stage: Stage) -> None:
        """Say that a stage of the step has ended: transfer, forward, backward, communicate or update."""
        self._marked = True
        if self._instruments is not None:
            self._instruments.timeline.mark(stage)

    def step(self, units: int) -> None:
        """Count a step of this process.

        Raises:
            ProbeEnd: the probe has measured enough.
        """
        assert self._instruments is not None
        self.mark("update" if self._marked else "forward")
        self._instruments.step(units * self.world_size)
        self._steps += 1
        self._units += units * self.world_size
        self._in_epoch += 1
        if self._on_step is not None and self._steps_per_epoch:
            self._on_step(self._epoch + 1, self._in_epoch, self._steps_per_epoch)
        if self.turns is not None:
            self.turns.step(units * self.world_size)
        elif self.probe and self._may_stop(time.perf_counter() - self._started):
            self.pause()
            raise ProbeEnd

    # What the trainable uses.

    @property
    def next_epoch(self) -> int:
        """Epoch that is reported next; at the start that after the checkpoint, or 1."""
        return self._epoch + 1

    def probed(self) -> Measurement:
        """Return the metrics of a probe.

        Raises:
            OwnCodeError: no step was counted.
        """
        if self._instruments is None or not self._steps:
            raise OwnCodeError("train returned without a step; go through the batches by trial.steps(loader)")
        self.pause()
        return Measurement(0, self._instruments.metrics())

    def cost(self) -> Cost:
        """Return rate and length of an epoch, from the steps so far.

        Raises:
            InfeasibleError: no step was counted, or the loader has no length.
        """
        self.pause()
        if not self._steps or not self._steps_per_epoch:
            raise InfeasibleError("the length of an epoch is not known: no step, or a loader without a length")
        per_epoch = round(self._steps_per_epoch * self._units / self._steps)
        return Cost(self._units / self._seconds, per_epoch, checkpoint_bytes=None)

    def reported_again(self) -> bool:
        """Report the checkpoint's epoch again, as after a restart; return whether there are epochs to train."""
        if self._last is None:
            return True
        return self._worker.report(self._last) and self._epoch < self.num_epochs

    def check_finished(self) -> None:
        """Check that `train` has reported all epochs, if it was not told to end.

        Raises:
            OwnCodeError: it has not.
        """
        if self._going_on:
            raise OwnCodeError(
                f"train returned after epoch {self._epoch} of {self.num_epochs}; go through all of trial.epochs(), "
                "without early stopping, and call trial.report in each: the search ends what promises little"
            )

    def close(self) -> None:
        """End measuring."""
        if self._instruments is not None:
            self._instruments.close()

    @property
    def _network(self) -> dict[str, Any]:
        return {"source": self._settings.source}

    def _may_stop(self, seconds: float) -> bool:
        assert self._instruments is not None
        if self._most_seconds is not None:
            return seconds >= self._most_seconds
        return may_stop(self._instruments, self._worker, self.device, self._steps, seconds)

    def _check_trained(self, epoch: int) -> None:
        if not self._in_epoch:
            why = "go through the batches by trial.steps(loader), and not for one batch alone that ends by break"
            if self._steps:
                why = "its batches were used up before; create them anew in each epoch, or make a list of them"
            raise OwnCodeError(f"trial.report({epoch}) without a step; {why}")

    def _check(self, epoch: int, values: Mapping[str, float], names: Collection[str]) -> None:
        if epoch != self.next_epoch:
            raise OwnCodeError(f"trial.report({epoch}, ...) where epoch {self.next_epoch} is expected")
        self._check_names(names)
        for name, value in values.items():
            if not math.isfinite(value):
                raise FloatingPointError(f"{name} is {value} after epoch {epoch}")

    def _check_names(self, names: Collection[str]) -> None:
        missing = [name for name in self.metrics if name not in names]
        unknown = [name for name in names if name not in (*self.metrics, "train_loss")]
        if missing or unknown:
            given, declared = ", ".join(names) or "nothing", ", ".join(self.metrics)
            raise OwnCodeError(f"trial.report was given {given}; METRICS declares {declared}")


def measured(metrics: Mapping[str, float | Tensor], where: str) -> tuple[dict[str, float], dict[str, OfSamples]]:
    """Return numbers, with the ends of the 95% intervals of means over samples, and the values of single samples.

    Raises:
        OwnCodeError: a value is neither a number nor a tensor; `where` begins the message.
    """
    of_samples = {name: _of_samples(value) for name, value in metrics.items() if _is_of_samples(value)}
    values = {name: _number(name, value, where) for name, value in metrics.items() if name not in of_samples}
    for name, each in of_samples.items():
        values |= mean_with_interval(name, each)
    return values, of_samples


def _number(name: str, value: Any, where: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        found = " ".join(reprlib.repr(value).split())
        expected = "expected a number, or a tensor with a row for each sample"
        raise OwnCodeError(f"{where}: {name} is {found}; {expected}") from error


def _is_of_samples(value: float | Tensor) -> bool:
    return isinstance(value, Tensor) and value.numel() > 1


def _of_samples(value: float | Tensor) -> OfSamples:
    assert isinstance(value, Tensor)
    each: OfSamples = of_each_sample(value.detach(), len(value)).cpu().numpy()
    return each


def _save(folder: Path, content: Checkpoint) -> None:
    try:
        checkpoint.save(folder, content)
    except (TypeError, AttributeError) as error:
        raise OwnCodeError(f"the checkpoint cannot be written: {error}") from error


def units_of(batch: Any, units: Units) -> int:
    """Return the units of a step with this batch."""
    if isinstance(units, int):
        return units
    if units is not None:
        return int(units(batch))
    arrays = [leaf for leaf in tree_leaves(batch) if isinstance(leaf, Tensor | np.ndarray) and leaf.ndim]
    if not arrays:
        what = "trial.steps: a batch without tensors or arrays; say its size"
        raise OwnCodeError(f"{what}, as in trial.steps(loader, units=lambda batch: len(batch[0]))")
    return len(arrays[0])
