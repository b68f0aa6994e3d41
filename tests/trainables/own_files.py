"""Users' training files for tests: a regression, and a small transformer on tokens."""

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


def written(folder: Path, name: str, *changes: tuple[str, str], text: str = LINEAR) -> str:
    """Write a training file with changes; return its path."""
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    (folder / name).write_text(text)
    return str(folder / name)
