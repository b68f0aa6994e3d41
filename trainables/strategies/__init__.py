"""Strategies: how the devices share the work of a step. One file each; the loop around them is the same."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Protocol, cast

from torch import Tensor, device, nn

from trainables.pictures.loaders import Share
from trainables.settings import Settings
from trainables.stages import Timeline

STRATEGIES = ("single", "data_parallel", "ddp", "fsdp", "ring_allreduce", "parameter_server", "pipeline")


class TrainStep(Protocol):
    """Forward, backward and update of one batch, on all devices of the trial."""

    @property
    def model(self) -> nn.Module:
        """The bare network: evaluated, and kept in checkpoints. After `gather` it is the same on all ranks."""
        ...

    def __call__(self, images: Tensor, labels: Tensor, timeline: Timeline) -> Tensor:
        """Train on this rank's share of a batch. Its part of the whole batch's mean loss, on the device, detached.

        The parts of all ranks add up to the mean. Marks the stages `forward`, `backward`, `communicate` (if there is
        any) and `update`, in the order in which they happen; a stage may come several times.
        """
        ...

    def set_learning_rate(self, value: float) -> None:
        """For the steps that follow."""
        ...

    def gather(self) -> None:
        """Bring `model` up to date on all ranks. Called by all of them, before evaluation and checkpoints."""
        ...

    def metrics(self) -> dict[str, float]:
        """What only this strategy can tell, so far, of the whole job. Called by all ranks; what rank 0 gets is kept."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must hold to go on, whole: network and optimizer, in one form for all strategies.

        Called by all ranks, after `gather`; what rank 0 gets is kept. See `trainables.step.optimizer_state`.
        """
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there; called by all ranks, each with the whole.

        Raises:
            RuntimeError, KeyError, ValueError: it is of another network or optimizer.
        """
        ...


class Strategy(Protocol):
    """A module with these names."""

    def share(self, rank: int, world_size: int) -> Share:
        """Which part of each batch that rank reads."""
        ...

    def build(self, model: nn.Module, settings: Settings, device: device) -> TrainStep:
        """A step that trains `model`, which is on `device` already. All ranks call it with equal weights."""
        ...


def get_strategy(name: str) -> Strategy:
    """The strategy of that name.

    Raises:
        LookupError: there is none.
    """
    if name not in STRATEGIES:
        raise LookupError(f'no strategy "{name}"; there are {", ".join(STRATEGIES)}')
    return cast(Strategy, importlib.import_module(f"trainables.strategies.{name}"))
