"""A loop of one's own: an LSTM that keeps its state from step to step, on the standard library's sources."""

import sysconfig
from pathlib import Path

import torch
from torch import nn

UNIT = "characters"
PARAMETERS = {"batch_size": 32, "length": 64, "hidden": 128, "learning_rate": 0.003}
METRICS = {"val_loss": "nats"}
PARTS = {"train": (0, 8), "validation": (8, 9), "test": (9, 10)}  # tenths of the text


def windows(part, config, root):
    files = sorted(Path(root or sysconfig.get_path("stdlib")).glob("*.py"))
    text = torch.frombuffer(bytearray(b"".join(f.read_bytes() for f in files)[:1_000_000]), dtype=torch.uint8)
    text = text[slice(*(len(text) * tenth // 10 for tenth in PARTS[part]))]
    columns, length = text[len(text) % config["batch_size"] :].view(config["batch_size"], -1).long(), config["length"]
    return [columns[:, i : i + length + 1] for i in range(0, columns.shape[1] - length - 1, length)]


class Network(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.symbols, self.lstm = nn.Embedding(256, hidden), nn.LSTM(hidden, hidden, batch_first=True)
        self.output = nn.Linear(hidden, 256)

    def forward(self, batch, state):
        found, state = self.lstm(self.symbols(batch[:, :-1]), state)
        loss = nn.functional.cross_entropy(self.output(found).flatten(0, 1), batch[:, 1:].flatten())
        return loss, tuple(part.detach() for part in state)

    @torch.no_grad()
    def loss_of(self, part, config, trial):
        return float(torch.stack([self(b.to(trial.device), None)[0] for b in windows(part, config, trial.root)]).mean())


def train(config, trial):
    network = Network(config["hidden"]).to(trial.device)
    optimizer = torch.optim.Adam(network.parameters(), config["learning_rate"])
    if trial.checkpoint:
        network.load_state_dict(trial.checkpoint["network"])
        optimizer.load_state_dict(trial.checkpoint["optimizer"])
    batches = windows("train", config, trial.root)
    for epoch in trial.epochs():
        state = None
        for batch in trial.steps(batches, units=config["batch_size"] * config["length"]):
            optimizer.zero_grad()
            loss, state = network(batch.to(trial.device), state)
            loss.backward()
            optimizer.step()
        saved = {"network": network.state_dict(), "optimizer": optimizer.state_dict()}
        trial.report(epoch, checkpoint=saved, val_loss=network.loss_of("validation", config, trial))


def test(config, trial):
    network = Network(config["hidden"]).to(trial.device)
    network.load_state_dict(trial.checkpoint["network"])
    return {"test_loss": network.loss_of("test", config, trial)}
