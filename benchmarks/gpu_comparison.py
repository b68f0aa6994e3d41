"""Training loops of VGG-19 that run in turn on one GPU: textbook, expert by hand, ours."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import torch
from command_line import DEVICE, RESOURCES, rate_of_turn, settings_of
from expert import expert_batches, expert_step
from gpu_conditions import is_emulated
from knobs import Runner
from textbook import textbook_loader, textbook_step

from trainables.contract import Data
from trainables.samples.picture_source import training_pictures
from trainables.vgg19_cifar10 import trainable as vgg19_cifar10

COMPILED_EXPERT = "expert"
FIRST_TURNS = 3  # of three steps, for compilation, choice of kernels and capture of a graph


class Side(Protocol):
    """A loop that runs for a few seconds at a time; `knobs.Runner` is ours."""

    def rate(self, seconds: float) -> float:
        """Return the images per second of a turn."""
        ...


class ByHand:
    """Loop written by hand."""

    def __init__(self, step: Callable[..., object], batches: Iterator[Any], batch_size: int) -> None:
        self._step, self._batches, self._batch_size = step, batches, batch_size

    def rate(self, seconds: float) -> float:
        """See `Side`."""
        return rate_of_turn(lambda: self._step(*next(self._batches)), self._batch_size, seconds)


class Comparison:
    """Loops that are built when they have their first turn, and kept."""

    def __init__(self, data: Data, fixed: Mapping[str, Any], turn_seconds: float) -> None:
        """`fixed`: settings of all configurations."""
        self._data, self._fixed, self._seconds = data, fixed, turn_seconds
        self._sides: dict[str, Side] = {}

    def turn(self, name: str, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the rate of the side with this name in a turn, with its configuration."""
        torch.backends.cudnn.benchmark = name != "textbook"  # that loop sets nothing
        key = f"{name} {config}"
        if key not in self._sides:
            self._sides[key] = side = self._built(name, {**self._fixed, **config})
            for _ in range(FIRST_TURNS):
                side.rate(0.0)
        rate = self._sides[key].rate(self._seconds)
        return {"side": name, "config": dict(config), "images_per_second": rate}

    def _built(self, name: str, config: Mapping[str, Any]) -> Side:
        pictures = training_pictures(self._data)
        if name == "ours":
            vgg19_cifar10.layout(config, RESOURCES)  # refuses what cannot run here
            return Runner(config, self._data, pictures)
        settings, batch_size = settings_of(config), config["batch_size"]
        if name == "textbook":
            _, step = textbook_step(settings, pictures.num_classes)
            loader = textbook_loader(self._data, batch_size)
            return ByHand(step, (batch for _ in itertools.count() for batch in loader), batch_size)
        compiled = name == COMPILED_EXPERT
        step = expert_step(settings, pictures.num_classes, DEVICE, compile=compiled)
        return ByHand(step, expert_batches(pictures, batch_size, DEVICE), batch_size)


def expert_here() -> str:
    """Return the name of the expert's loop: compiled where this machine can compile."""
    reason = "not emulated" if is_emulated() else vgg19_cifar10.unavailable("compile", True, RESOURCES)
    return COMPILED_EXPERT if reason is None else f"expert, not compiled ({reason})"
