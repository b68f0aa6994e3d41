"""One training step on one device: forward, loss, backward, update, in the precision asked for. No host waits."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from trainables.machine.processor import precision_of
from trainables.settings import Settings
from trainables.stages import Timeline

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


class Step:
    """Trains `model` by calling `forward`: the model itself, or what a strategy wraps around it."""

    def __init__(self, model: nn.Module, forward: nn.Module, settings: Settings, device: torch.device) -> None:
        self.model = model
        self._forward = torch.compile(forward) if settings.compile else forward
        self._optimizer = optimizer(model, settings)
        self._scaler = torch.amp.GradScaler(device.type, enabled=settings.precision == "fp16")
        self._settings, self._device = settings, device

    def __call__(self, images: Tensor, labels: Tensor, timeline: Timeline) -> Tensor:
        """These pictures' part of the batch's mean loss, detached, on the device."""
        loss = self._forward_and_loss(images, labels, timeline)
        self._optimizer.zero_grad(set_to_none=True)
        self._backward(self._scaler.scale(loss), timeline)
        self._scaler.step(self._optimizer)
        self._scaler.update()
        timeline.mark("update")
        return loss.detach()

    def _forward_and_loss(self, images: Tensor, labels: Tensor, timeline: Timeline) -> Tensor:
        with autocast(self._settings, self._device):
            logits = self._forward(arranged(images, self._settings))
            loss = loss_of(logits, labels, self._settings)
        timeline.mark("forward")
        return loss

    def _backward(self, loss: Tensor, timeline: Timeline) -> None:
        torch.autograd.backward(loss)
        timeline.mark("backward")

    def set_learning_rate(self, value: float) -> None:
        """For the steps that follow."""
        for group in self._optimizer.param_groups:
            group["lr"] = value

    def gather(self) -> None:
        """Nothing to do: the model is here."""

    def metrics(self) -> dict[str, float]:
        """Nothing but what the instruments tell."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Network, optimizer by the names of the parameters, and the gradient scaler of fp16."""
        return {
            "model": self.model.state_dict(),
            "optimizer": optimizer_state(self.model, self._optimizer),
            "scaler": self._scaler.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.model.load_state_dict(state["model"])
        load_optimizer_state(self.model, self._optimizer, state["optimizer"])
        if state["scaler"]:  # empty where it is not in use
            self._scaler.load_state_dict(state["scaler"])


def autocast(settings: Settings, device: torch.device) -> AbstractContextManager[object]:
    """The context in which the network computes in the settings' precision."""
    precision = precision_of(settings.precision, device.type)
    return nullcontext() if precision == "fp32" else torch.autocast(device.type, DTYPES[precision])


def arranged(images: Tensor, settings: Settings) -> Tensor:
    """Pictures in the settings' memory format."""
    return images.contiguous(memory_format=FORMATS[settings.memory_format])


def optimizer(model: nn.Module, settings: Settings) -> torch.optim.Optimizer:
    """SGD with Nesterov momentum, or AdamW. Weights decay; normalisation and biases do not."""
    rate: float | Tensor = settings.learning_rate
    if settings.cuda_graphs:  # a graph repeats the numbers that it saw; it reads anew what is in memory
        rate = torch.tensor(settings.learning_rate, device=next(model.parameters()).device)
    weights = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": weights, "weight_decay": settings.weight_decay}, {"params": others, "weight_decay": 0.0}]
    if settings.optimizer == "adamw":
        return torch.optim.AdamW(
            groups,
            lr=rate,
            betas=(settings.momentum, 0.999),
            fused=settings.fused_optimizer,
            capturable=settings.cuda_graphs,
        )
    momentum = settings.momentum
    return torch.optim.SGD(groups, lr=rate, momentum=momentum, nesterov=momentum > 0, fused=settings.fused_optimizer)


def loss_of(logits: Tensor, labels: Tensor, settings: Settings) -> Tensor:
    """Label-smoothed cross-entropy: the sum over these pictures, divided by how many the whole batch has."""
    total = nn.functional.cross_entropy(logits, labels, label_smoothing=settings.label_smoothing)
    share = len(labels) / settings.batch_size
    return total if share == 1 else total * share


def optimizer_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, dict[str, Any]]:
    """What the optimizer knows of each parameter, by its name in `model`: the same form for every strategy."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    return {names[parameter]: dict(known) for parameter, known in optimizer.state.items()}


def load_optimizer_state(model: nn.Module, optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """What was known of the parameters that this optimizer has; of others nothing is taken.

    Raises:
        KeyError: nothing is known of some of them, though of others it is.
    """
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    order = [names[parameter] for group in optimizer.param_groups for parameter in group["params"]]
    known = {i: dict(state[name]) for i, name in enumerate(order)} if state else {}
    optimizer.load_state_dict({**optimizer.state_dict(), "state": known})


def learning_rate(step: int, total_steps: int, peak: float, warmup: float = 0.2) -> float:
    """Of step 0, 1, ...: up to `peak` over the first fifth of the steps, then down, zero after the last one."""
    warmup_steps = max(1, round(warmup * total_steps))
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    return peak * (total_steps - step) / (total_steps - warmup_steps)
