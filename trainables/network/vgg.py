"""VGG for 32x32 images: configurations A, B, D and E of Simonyan and Zisserman (arXiv:1409.1556), of any width."""

from functools import partial
from itertools import pairwise
from typing import Literal

from torch import nn

from trainables.network.convolution import Convolution

Head = Literal["average_pooling", "fully_connected"]
Initialization = Literal["identity", "he"]

Depth = Literal[11, 13, 16, 19]
CHANNELS = (64, 128, 256, 512, 512)  # of the convolutions between two poolings
CONVOLUTIONS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}  # by depth
PICTURE_SIZE, PICTURE_CHANNELS = 32, 3


def vgg(
    num_classes: int = 10,
    *,
    depth: Depth = 19,
    width: float = 1.0,
    head: Head = "average_pooling",
    norm: bool = True,
    initialization: Initialization = "identity",
) -> nn.Module:
    """Build a network from images (batch, 3, 32, 32) to logits (batch, num_classes).

    `depth` counts the layers with weights, where the paper's head has three. `width` scales the channels; at depth 19,
    1.0 has 20.04 M parameters with 10 classes and the pooling head. `norm=False` omits batch
    normalisation, so that the result for an image does not depend on the rest of its batch.
    """
    blocks = [[scaled(channels, width)] * n for channels, n in zip(CHANNELS, CONVOLUTIONS[depth], strict=True)]
    layers: list[nn.Module] = []
    before, size = PICTURE_CHANNELS, PICTURE_SIZE
    for block in blocks:
        *inner, last = (convolution(a, b, size, norm) for a, b in pairwise([before, *block]))
        layers += inner
        if size == 2 and head == "average_pooling":
            layers += [last, nn.AdaptiveAvgPool2d(1)]  # mean of the last map instead of its maximum
        else:  # ReLU after pooling: the same values for a quarter of the work
            layers += [last[:-1], nn.Sequential(nn.MaxPool2d(2), nn.ReLU(inplace=True))]
        before, size = block[-1], size // 2
    network = nn.Sequential(*layers, nn.Flatten(), classifier(before, num_classes, head))
    network.apply(partial(initialize, initialization=initialization))
    return network


def scaled(channels: int, width: float) -> int:
    """Return the channels at this width: a multiple of 8, which matrix units need for full speed, and at least 8."""
    return max(8, 8 * round(channels * width / 8))


def convolution(channels_in: int, channels_out: int, size: int, norm: bool) -> nn.Sequential:
    """Build a 3x3 convolution on maps of `size` by `size`, with normalisation and ReLU."""
    convolve = Convolution(channels_in, channels_out, size=size, bias=not norm)
    return nn.Sequential(convolve, *([nn.BatchNorm2d(channels_out)] if norm else []), nn.ReLU(inplace=True))


def classifier(features: int, num_classes: int, head: Head) -> nn.Module:
    """Build one linear layer, or the paper's three with dropout, whose width is `features` instead of 4096."""
    if head == "average_pooling":
        return nn.Linear(features, num_classes)
    hidden = [[nn.Linear(features, features), nn.ReLU(inplace=True), nn.Dropout(0.5)] for _ in range(2)]
    return nn.Sequential(*hidden[0], *hidden[1], nn.Linear(features, num_classes))


def initialize(module: nn.Module, initialization: Initialization) -> None:
    """Initialise with He's normal weights (arXiv:1502.01852) and zero bias.

    identity: a convolution passes its input on in its first channels, but for the first one of the network
    (Jordan 2024, "94% on CIFAR-10 in 3.29 seconds", arXiv:2404.00498).
    """
    if isinstance(module, nn.Conv2d | nn.Linear):
        nn.init.kaiming_normal_(module.weight, nonlinearity="relu" if isinstance(module, nn.Conv2d) else "linear")
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    if initialization == "identity" and isinstance(module, nn.Conv2d) and module.in_channels > PICTURE_CHANNELS:
        nn.init.dirac_(module.weight.detach()[: module.in_channels])
