"""Losses that compare each output with all targets are told from those that compare each with its own."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from trainables.workloads.sample_values import mixed_samples

TARGETS: dict[str, Callable[[int], Tensor]] = {
    "around zero": torch.randn,
    "prices": lambda n: 2e5 + 5e4 * torch.randn(n),
    "classes": lambda n: (torch.randn(n) > 0).float(),
    "fractions": lambda n: 0.3 + 0.4 * torch.rand(n),
    "temperatures": lambda n: 293 + 0.1 * torch.randn(n),
}
OUTPUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "random": lambda targets: torch.randn(len(targets), 1),
    "zeros": lambda targets: torch.zeros(len(targets), 1),
    "at the mean": lambda targets: targets.mean() + 0.1 * torch.randn(len(targets), 1),
    "far": lambda targets: targets.mean() + 10 * targets.std() + 0.1 * torch.randn(len(targets), 1),
}


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("loss", [F.mse_loss, F.l1_loss, F.smooth_l1_loss])
@pytest.mark.parametrize("outputs", OUTPUTS)
@pytest.mark.parametrize("targets", TARGETS)
def test_whatever_the_outputs_and_targets_are(loss: Callable[..., Tensor], outputs: str, targets: str) -> None:
    for number in (8, 32, 128):
        torch.manual_seed(number)
        wanted = TARGETS[targets](number)
        found = OUTPUTS[outputs](wanted)
        assert mixed_samples(lambda one, other: loss(one.squeeze(1), other), found, wanted) is None
        assert mixed_samples(loss, found, wanted) is not None
