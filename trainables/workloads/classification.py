"""Loss, metrics and unit of a workload that tells pictures of several classes apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from torch import Tensor, nn

from trainables.contract import Data
from trainables.image_folder_settings import ImageFolderSettings
from trainables.settings import Settings
from trainables.vgg19_settings import Vgg19Settings


def units_per_sample(data: Data) -> int:
    """Return 1: the unit is a picture."""
    return 1


def loss(outputs: Tensor, targets: Tensor, settings: Settings) -> Tensor:
    """Return the label-smoothed cross-entropy."""
    own = cast(Vgg19Settings | ImageFolderSettings, settings)
    return nn.functional.cross_entropy(outputs, targets, label_smoothing=own.label_smoothing)


def measures(outputs: Tensor, targets: Tensor) -> Mapping[str, Tensor]:
    """Return cross-entropy (without label smoothing) and correctness of each picture, shape (batch,)."""
    return {
        "val_loss": nn.functional.cross_entropy(outputs, targets, reduction="none"),
        "val_accuracy": outputs.argmax(1) == targets,
    }
