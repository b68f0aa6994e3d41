"""Textbook loop of VGG-19, for comparison: a DataLoader with torchvision's transforms, fp32 and SGD."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from command_line import DEVICE
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Subset

from trainables.contract import Data
from trainables.network.vgg import vgg
from trainables.samples.loaders import MEAN, STD
from trainables.samples.picture_source import Pictures, training_pictures
from trainables.vgg19_settings import Vgg19Settings

LOADER_PROCESSES = 2


def textbook_loader(data: Data, batch_size: int, paths: Iterable[str] | None = None) -> Iterable[Any]:
    """Return batches of the picture files of `data`, or only of the files in `paths`; else of pictures in memory."""
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    transform = transforms.Compose(
        [
            transforms.RandomCrop(32, padding=Vgg19Settings.crop_padding),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )
    if data.name != "folder":
        dataset: Any = InMemory(training_pictures(data), transform)
    else:
        assert data.root is not None
        dataset = ImageFolder(str(Path(data.root) / "train"), transform)
    if paths is not None:
        indices = {os.path.realpath(path): i for i, (path, _) in enumerate(dataset.samples)}
        dataset = Subset(dataset, [indices[os.path.realpath(path)] for path in paths])
    return DataLoader(dataset, batch_size, shuffle=True, num_workers=LOADER_PROCESSES, drop_last=True)


def textbook_step(settings: Vgg19Settings, num_classes: int) -> tuple[nn.Module, Any]:
    """Return the network, and a training step that takes a batch and optionally a learning rate."""
    torch.manual_seed(settings.seed)
    model = vgg(num_classes, width=settings.width).to(DEVICE)
    criterion = nn.CrossEntropyLoss(label_smoothing=settings.label_smoothing)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=1e-3, momentum=settings.momentum, weight_decay=settings.weight_decay, nesterov=True
    )

    def step(images: Tensor, labels: Tensor, rate: float = 1e-3) -> None:
        optimizer.param_groups[0]["lr"] = rate
        images, labels = images.to(DEVICE), labels.to(DEVICE)
        optimizer.zero_grad()
        criterion(model(images), labels).backward()
        optimizer.step()

    return model, step


class InMemory(Dataset[tuple[Tensor, int]]):
    """Pictures in memory, transformed one by one, like torchvision's CIFAR10."""

    def __init__(self, pictures: Pictures, transform: Callable[[Any], Tensor]) -> None:
        self._pictures, self._transform = pictures, transform

    def __len__(self) -> int:
        return len(self._pictures.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        from PIL import Image

        picture = Image.fromarray(self._pictures.images[index])
        return self._transform(picture), int(self._pictures.labels[index])
