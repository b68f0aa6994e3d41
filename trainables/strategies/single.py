"""Training in one process, on one device or all cores."""

from __future__ import annotations

import torch
from torch import nn

from trainables.graphs import CapturedStep
from trainables.sample_shape import SampleShape
from trainables.settings import Settings
from trainables.step import Step
from trainables.strategy_table import captures


def build(model: nn.Module, settings: Settings, shape: SampleShape, device: torch.device) -> Step:
    """Return the plain step, or the step as a CUDA graph."""
    return (CapturedStep if captures(settings, device.type) else Step)(model, model, settings, device)
