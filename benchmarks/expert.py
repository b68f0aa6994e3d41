"""Loop of VGG-19 as an expert writes it by hand for one GPU, for comparison.

bf16, channels_last, torch.compile, a fused optimizer, and all pictures on the device, augmented once per epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from trainables.network.vgg import vgg
from trainables.samples.loaders import augmented, normalization
from trainables.samples.picture_source import Pictures
from trainables.vgg19_settings import Vgg19Settings


def expert_batches(pictures: Pictures, batch_size: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches without end."""
    images, labels = (torch.from_numpy(np.array(x)).to(device) for x in (pictures.images, pictures.labels))
    normalized, count, padding = normalization(device), len(labels), Vgg19Settings.crop_padding
    while True:
        order = torch.randperm(count, device=device)
        corners = torch.randint(2 * padding + 1, (count, 2), device=device)
        flips = torch.rand(count, device=device) < 0.5
        epoch = normalized(augmented(images[order], corners, flips, padding))
        epoch = epoch.to(torch.bfloat16, memory_format=torch.channels_last)
        for start in range(0, count - batch_size + 1, batch_size):
            yield epoch[start : start + batch_size], labels[order[start : start + batch_size]]


def expert_step(
    settings: Vgg19Settings, num_classes: int, device: torch.device, compile: bool
) -> Callable[[Tensor, Tensor], None]:
    """Return a training step; `compile` False: where this machine cannot compile."""
    torch.manual_seed(settings.seed)
    model = vgg(num_classes, width=settings.width).to(device).to(memory_format=torch.channels_last)
    network = torch.compile(model) if compile else model
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=1e-3,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        nesterov=True,
        fused=True,
    )

    def step(images: Tensor, labels: Tensor) -> None:
        with torch.autocast(device.type, torch.bfloat16):
            outputs = network(images)
            loss = torch.nn.functional.cross_entropy(outputs, labels, label_smoothing=settings.label_smoothing)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step
