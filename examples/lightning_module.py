"""A Lightning module: kinds of noisy curves; validation accuracy against samples per second."""

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from trainables.adapters.lightning import SearchCallback

PARAMETERS = {"batch_size": 64, "channels": 32, "learning_rate": 0.003, "num_workers": 0}
METRICS = {"val_accuracy": "fraction"}


def signals(count, seed):
    generator = torch.Generator().manual_seed(seed)
    kinds = torch.randint(3, (count,), generator=generator)
    angles = torch.linspace(0, 6.28, 64) * (1 + 3 * torch.rand(count, 1, generator=generator))
    curves = torch.stack([angles.sin(), angles.sin().sign(), (angles / 3.14) % 2 - 1])[kinds, torch.arange(count)]
    return TensorDataset((curves + torch.randn(count, 64, generator=generator))[:, None], kinds)


class Module(LightningModule):
    def __init__(self, channels, learning_rate):
        super().__init__()
        self.learning_rate, shape = learning_rate, (channels, 5)
        layers = [nn.Conv1d(1, *shape), nn.ReLU(), nn.Conv1d(channels, *shape), nn.ReLU(), nn.AdaptiveAvgPool1d(1)]
        self.network = nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels, 3))

    def training_step(self, batch, number):
        return cross_entropy(self.network(batch[0]), batch[1])

    def validation_step(self, batch, number):
        self.log("val_accuracy", (self.network(batch[0]).argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), self.learning_rate)


def train(config, trial):
    training = DataLoader(
        signals(8000, 0), config["batch_size"], shuffle=True, drop_last=True, num_workers=config["num_workers"]
    )
    validation = DataLoader(signals(2000, 1), 500)
    callback = SearchCallback(trial)
    trainer = Trainer(
        accelerator=trial.device.type,
        devices=1,
        max_epochs=trial.num_epochs,
        callbacks=[callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module = Module(config["channels"], config["learning_rate"])
    trainer.fit(module, training, validation, ckpt_path=callback.checkpoint)
