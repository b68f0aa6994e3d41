"""Parameters of a classification network of torchvision on a folder of pictures, beside those of every training."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal

from trainables.settings import Settings, parameter

REGISTERED = re.compile(r'^@register_model\((?:name="(\w+)")?\)\n(?:@[^\n]*\n)*def (\w+)\(', re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class ImageFolderSettings(Settings):
    """A configuration of such a training."""

    workload: ClassVar[str] = "trainables.workloads.image_folder"

    network: str = parameter("resnet18", "classification network of torchvision, without pretrained weights")
    image_size: int = parameter(224, "height and width of the pictures that the network sees, in pixels", low=16)
    label_smoothing: float = parameter(
        0.0, "smoothing of the training loss's labels", low=0.0, high=0.9999, affects="trained"
    )
    loader: Literal["workers", "memory"] = parameter(
        "workers", "decode pictures in each epoch, or once and keep them in memory as bytes", affects="probed"
    )

    @property
    def loader_processes(self) -> int:
        """Number of loader processes, per process of the trial."""
        return self.num_workers if self.loader == "workers" else 0

    def that_shape_the_network(self) -> dict[str, Any]:
        """Return the settings on which the network's weights depend."""
        return {"network": self.network, "image_size": self.image_size}


@cache
def networks() -> tuple[str, ...]:
    """Return the names of torchvision's classification networks, read from its sources; it is not imported."""
    spec = importlib.util.find_spec("torchvision")
    folders = [] if spec is None else [Path(folder) / "models" for folder in spec.submodule_search_locations or ()]
    texts = [file.read_text() for folder in folders for file in sorted(folder.glob("*.py"))]
    return tuple(sorted(name or function for text in texts for name, function in REGISTERED.findall(text)))
