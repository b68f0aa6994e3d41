"""Hugging Face's Trainer: a small GPT-2 on the sources of Python's standard library, byte by byte."""

import sysconfig
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from trainables.adapters.hugging_face import SearchCallback

UNIT = "tokens"
PARAMETERS = {"batch_size": 16, "layers": 2, "embed": 64, "learning_rate": 0.002}
METRICS = {"val_loss": "nats"}
LENGTH, WINDOWS = 128, {"train": (0, 1600), "validation": (1600, 1800)}


def windows(part):
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    text = bytearray(b"".join(file.read_bytes() for file in files)[: 1800 * LENGTH])
    rows = torch.frombuffer(text, dtype=torch.uint8).view(-1, LENGTH).long()
    return [{"input_ids": row, "labels": row} for row in rows[slice(*WINDOWS[part])]]


def train(config, trial):
    sizes = {"n_positions": LENGTH, "n_layer": config["layers"], "n_embd": config["embed"], "n_head": 4}
    network = GPT2LMHeadModel(GPT2Config(vocab_size=256, bos_token_id=0, eos_token_id=0, **sizes))
    arguments = TrainingArguments(
        output_dir=str(trial.folder),
        num_train_epochs=trial.num_epochs,
        per_device_train_batch_size=config["batch_size"],
        learning_rate=config["learning_rate"],
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=2,
        dataloader_drop_last=True,  # each step counts as many units
        use_cpu=trial.device.type == "cpu",
        report_to="none",
        logging_strategy="no",
        disable_tqdm=True,
    )
    callback = SearchCallback(trial, units=config["batch_size"] * LENGTH)
    trainer = Trainer(
        network, arguments, train_dataset=windows("train"), eval_dataset=windows("validation"), callbacks=[callback]
    )
    trainer.train(resume_from_checkpoint=callback.checkpoint)
