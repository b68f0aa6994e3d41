"""Callback for Lightning's Trainer, in a user's `train(config, trial)`.

    callback = SearchCallback(trial)
    trainer = Trainer(max_epochs=trial.num_epochs, callbacks=[callback], logger=False, enable_checkpointing=False)
    trainer.fit(module, train_loader, val_loader, ckpt_path=callback.checkpoint)

Needs the extra `lightning`. Each metric that METRICS declares must be logged by the module, such as by
`self.log("val_loss", loss)`. On one process; a `devices` or `strategy` of several would train outside of the trial.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from trainables.contract import OwnCodeError
from trainables.own_trial import OwnTrial, units_of


class SearchCallback(Callback):
    """Callback that measures each step, reports each epoch with a checkpoint, and ends the training when told to."""

    def __init__(self, trial: OwnTrial, units: int | Callable[[Any], int] | None = None) -> None:
        """`units`: of a step, or a function of its batch; by default its samples."""
        self._trial, self._units = trial, units

    @property
    def checkpoint(self) -> Path | None:
        """File to go on from; None: start from the beginning."""
        return self._trial.folder / self._trial.checkpoint["file"] if self._trial.checkpoint else None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Check that a restart goes on."""
        if self._trial.checkpoint and not trainer.global_step:
            raise OwnCodeError("it began anew; call trainer.fit(..., ckpt_path=callback.checkpoint)")

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start measuring."""
        batches = trainer.num_training_batches
        self._trial.resume(batches if isinstance(batches, int) else None)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Mark the end of loading."""
        self._trial.resume()
        self._trial.loaded()

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Any) -> None:
        """Mark the end of the forward pass."""
        self._trial.mark("forward")

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Mark the end of the backward pass."""
        self._trial.mark("backward")

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count the step."""
        self._trial.step(units_of(batch, self._units))

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop measuring; the next batch resumes it."""
        self._trial.pause()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write a checkpoint and report the metrics that the module has logged."""
        self._trial.pause()
        if self._trial.probe:
            return
        logged = trainer.callback_metrics
        for name in self._trial.metrics:
            if name not in logged:
                raise OwnCodeError(f"{name} was not logged; the module logged {', '.join(logged) or 'nothing'}")
        epoch, last = trainer.current_epoch + 1, self.checkpoint
        path = self._trial.folder / f"epoch-{epoch}.ckpt"
        trainer.save_checkpoint(path)
        metrics = {name: float(logged[name]) for name in self._trial.metrics}
        if not self._trial.report(epoch, checkpoint={"file": path.name}, **metrics):
            trainer.should_stop = True
        if last is not None and last != path:
            last.unlink(missing_ok=True)
