"""Parallel strategies: one module each computes a training step on the devices of a trial."""

from __future__ import annotations

import importlib
from typing import Protocol, cast

from torch import device, nn

from trainables.sample_shape import SampleShape
from trainables.settings import Settings
from trainables.step import Step
from trainables.strategy_table import STRATEGIES


class StrategyModule(Protocol):
    """Module of a strategy."""

    def build(self, model: nn.Module, settings: Settings, shape: SampleShape, device: device) -> Step:
        """Return a step that trains `model`, which is on `device` already. All ranks call it with equal weights.

        Raises:
            InfeasibleError: the strategy cannot train such a network.
        """


def get_strategy(name: str) -> StrategyModule:
    """Import the module of a strategy.

    Raises:
        LookupError: the table has no such strategy.
    """
    if name not in STRATEGIES:
        raise LookupError(f'no strategy "{name}"; there are {", ".join(STRATEGIES)}')
    return cast(StrategyModule, importlib.import_module(STRATEGIES[name].module))
