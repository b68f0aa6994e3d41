"""One process, one device, all of its cores."""

from __future__ import annotations

import torch
from torch import nn

from trainables.graphs import CapturedStep
from trainables.pictures.loaders import Share
from trainables.settings import Settings
from trainables.step import Step


def share(rank: int, world_size: int) -> Share:
    """All of it."""
    return Share()


def build(model: nn.Module, settings: Settings, device: torch.device) -> Step:
    """The plain step, or the same as a CUDA graph."""
    kind = CapturedStep if settings.cuda_graphs else Step
    return kind(model, model, settings, device)
