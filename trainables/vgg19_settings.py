"""Parameters of VGG19 on 32x32 pictures, beside those of every training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from trainables.settings import Settings, parameter


def loader_of(loader: str, device_type: str) -> str:
    """Resolve `auto` for a device of this type on which the pictures fit."""
    if loader != "auto":
        return loader
    return "device" if device_type == "cuda" else "memory"


@dataclass(frozen=True, kw_only=True)
class Vgg19Settings(Settings):
    """A configuration of VGG19's training."""

    workload: ClassVar[str] = "trainables.workloads.vgg19"

    weight_decay: float = parameter(
        1e-3, "decay of weights; normalisation and biases do not decay", low=0.0, affects="trained"
    )
    label_smoothing: float = parameter(
        0.1, "smoothing of the training loss's labels", low=0.0, high=0.9999, affects="trained"
    )
    crop_padding: int = parameter(
        2,
        "black pixels on each side of a training picture, before a random crop of its size; 4 is usual for long"
        " trainings",
        low=0,
        high=8,
        affects="trained",
    )
    depth: Literal[11, 13, 16, 19] = parameter(19, "layers with weights: VGG11, VGG13, VGG16 or VGG19")
    width: float = parameter(1.0, "channels as a multiple of VGG's own", low=0.01)
    head: Literal["average_pooling", "fully_connected"] = parameter("average_pooling", "classifier")
    initialization: Literal["identity", "he"] = parameter(
        "identity",
        "weights at the start: He's, and with identity each convolution passes its input on in its first channels",
        affects="trained",
    )
    loader: Literal["auto", "workers", "memory", "device"] = parameter(
        "auto",
        "load single pictures in processes, whole batches from memory, or batches on the GPU; auto: on a GPU if the"
        " pictures fit there, else from memory",
        affects="probed",
    )
    num_workers: int = parameter(
        0, "processes of the loader `workers`, per process of the trial", low=0, affects="probed"
    )
    conv_kernel: Literal["library", "gemm", "auto"] = parameter(
        "auto",
        "small feature maps on a CPU: PyTorch's kernels, few matrix products, or the faster one per layer, timed once",
        affects="probed",
    )

    @property
    def loader_processes(self) -> int:
        """Number of loader processes, per process of the trial."""
        return self.num_workers if self.loader == "workers" else 0

    def that_shape_the_network(self) -> dict[str, Any]:
        """Return the settings on which the network's weights depend."""
        return {"depth": self.depth, "width": self.width, "head": self.head}
