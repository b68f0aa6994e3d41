"""Users' training files for tests: a regression, and the same with a loop of its own."""

from pathlib import Path

LINEAR = """\
import torch
from torch import nn

UNIT = "rows"
PARAMETERS = {"hidden": 8}
METRICS = {"val_loss": "1", "val_sign": "fraction"}


class Rows(torch.utils.data.Dataset):
    def __init__(self, part):
        generator = torch.Generator().manual_seed({"train": 0, "validation": 1, "test": 2}[part])
        self.x = torch.randn(48 if part == "train" else 19, 4, generator=generator)
        self.y = self.x.sum(1, keepdim=True)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i] + 0.1 * torch.randn(4), self.y[i]


def network(hidden):
    return nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Dropout(0.1), nn.Linear(hidden, 1))


def dataset(part, root):
    return Rows(part)


def loss(outputs, targets):
    return nn.functional.mse_loss(outputs, targets)


def measures(outputs, targets):
    return {"val_loss": (outputs - targets) ** 2, "val_sign": (outputs * targets > 0).float()}
"""

LOOP = """\
import torch
from torch import nn

UNIT = "rows"
PARAMETERS = {"batch_size": 8, "hidden": 8, "learning_rate": 0.01}
METRICS = {"val_loss": "1"}


def rows(count, seed):
    x = torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))
    return torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))


def network(hidden):
    return nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, 1))


def train(config, trial):
    model = network(config["hidden"])
    optimizer = torch.optim.SGD(model.parameters(), config["learning_rate"])
    if trial.checkpoint:
        model.load_state_dict(trial.checkpoint)
    loader = torch.utils.data.DataLoader(rows(128, 0), config["batch_size"])
    for epoch in trial.epochs():
        for x, y in trial.steps(loader):
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        trial.report(epoch, checkpoint=model.state_dict(), val_loss=tested(model, 1))


@torch.no_grad()
def tested(model, seed):
    x, y = rows(19, seed).tensors
    return nn.functional.mse_loss(model(x), y)


def test(config, trial):
    model = network(config["hidden"])
    model.load_state_dict(trial.checkpoint)
    return {"test_loss": tested(model, 2)}
"""


def written(folder: Path, name: str, *changes: tuple[str, str], text: str = LINEAR) -> str:
    """Write a training file with changes; return its path."""
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    (folder / name).write_text(text)
    return str(folder / name)
