"""Callback for the Trainer of Hugging Face's transformers, in a user's `train(config, trial)`.

    arguments = TrainingArguments(
        output_dir=trial.folder, num_train_epochs=trial.num_epochs, eval_strategy="epoch", save_strategy="epoch",
        save_total_limit=2, dataloader_drop_last=True, ...
    )
    callback = SearchCallback(trial, units=arguments.per_device_train_batch_size)
    trainer = Trainer(network, arguments, train_dataset=..., eval_dataset=..., callbacks=[callback])
    trainer.train(resume_from_checkpoint=callback.checkpoint)

Needs the extra `hugging-face`. A metric `val_x` of METRICS is what the Trainer calls `eval_x`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from trainables.contract import OwnCodeError
from trainables.own_trial import OwnTrial


class SearchCallback(TrainerCallback):
    """Callback that measures each step, reports each saved epoch, and ends the training when told to."""

    def __init__(self, trial: OwnTrial, units: int) -> None:
        """`units`: of one update, such as the samples or tokens of its batches; all updates count as many."""
        self._trial, self._units = trial, units
        self._metrics: dict[str, float] = {}

    @property
    def checkpoint(self) -> str | None:
        """Folder to go on from; None: start from the beginning."""
        return str(self._trial.folder / self._trial.checkpoint["folder"]) if self._trial.checkpoint else None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Check that checkpoints are where a restart finds them, and that this is not a new start."""
        folder = self._trial.folder.resolve()
        if not self._trial.probe and Path(args.output_dir or "").resolve() != folder:
            raise OwnCodeError(f'output_dir is "{args.output_dir}"; expected trial.folder, where a restart goes on')
        if self._trial.checkpoint and not state.global_step:
            raise OwnCodeError("it began anew; call trainer.train(resume_from_checkpoint=callback.checkpoint)")

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Start measuring."""
        self._trial.resume(round(state.max_steps / max(1, state.num_train_epochs)))

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Mark the end of loading."""
        self._trial.resume()
        self._trial.loaded()

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Mark the end of the forward and backward passes."""
        self._trial.mark("forward")

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Count the step."""
        self._trial.step(self._units)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Stop measuring."""
        self._trial.pause()

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Keep the metrics for the report."""
        self._trial.pause()
        found = {name.replace("eval_", "val_", 1): value for name, value in (metrics or {}).items()}
        for name in self._trial.metrics:
            if name not in found:
                raise OwnCodeError(f"{name} was not measured; the evaluation gave {', '.join(found)}")
        self._metrics = {name: float(found[name]) for name in self._trial.metrics}

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Report the epoch, whose checkpoint is written."""
        if self._trial.probe:
            return
        if not self._metrics:
            raise OwnCodeError('no metrics before the checkpoint; set eval_strategy and save_strategy to "epoch"')
        epoch = round(state.epoch or 0)
        saved = {"folder": f"checkpoint-{state.global_step}"}
        if not self._trial.report(epoch, checkpoint=saved, **self._metrics):
            control.should_training_stop = True
        self._metrics = {}
