"""Training step on one device: forward, loss, backward, update. The host never waits for the device."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.utils._pytree import tree_leaves, tree_map

from trainables.contract import InfeasibleError
from trainables.machine.processor import precision_of
from trainables.plan import Share, share_of
from trainables.settings import Settings
from trainables.stages import Timeline
from trainables.strategy_table import captures
from trainables.workload import num_samples, workload_of

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
MOST_CHARACTERS = 200  # of what a message says of a batch
FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


class Step:
    """Forward, backward and update of one batch; strategies subclass it.

    It trains `model` by calling `forward`: the model itself or a strategy's wrapper around it. `model` is the unwrapped
    network for evaluation and checkpoints. It is equal on all ranks after `gather`.
    """

    IN_PARTS = False  # whether each rank updates only a part of the weights

    def __init__(
        self,
        model: nn.Module,
        forward: nn.Module,
        settings: Settings,
        device: torch.device,
        share: Share | None = None,
    ) -> None:
        """`share`: what this rank reads of each batch; None: its share by the strategy."""
        self.model = model
        self._forward = torch.compile(forward) if settings.compile else forward
        self._optimizer = optimizer(model, settings)
        self._scaler = torch.amp.GradScaler(device.type, enabled=settings.precision == "fp16")
        self._settings, self._device = settings, device
        rank, world_size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        first, end = (share or share_of(settings.strategy, rank, world_size)).within(settings.batch_size)
        self._most_samples = end - first  # that this rank reads of each batch
        self._part = self._most_samples / settings.batch_size

    def __call__(self, inputs: Any, targets: Any, timeline: Timeline) -> Tensor:
        """Train on this rank's share of a batch; return its part of the batch's mean loss, detached, on the device.

        The parts of all ranks add up to the mean. The step marks the stages `forward`, `backward`, `communicate` (if
        the ranks communicate) and `update` in the order in which they happen; a stage may occur several times.
        """
        self._optimizer.zero_grad(set_to_none=True)
        loss = self._add_gradients(inputs, targets, timeline)
        self._update(timeline)
        return loss

    def _add_gradients(self, inputs: Any, targets: Any, timeline: Timeline) -> Tensor:
        """Add the gradients of the whole batch, part by part; return the loss of this rank's share."""
        *firsts, last = self._micro_batches(inputs, targets)
        losses = list[Tensor]()
        for each in firsts:
            with self._unsynchronised():
                losses.append(self._forward_and_backward(*each, timeline))
        losses.append(self._forward_and_backward(*last, timeline))
        return torch.stack(losses).sum() if firsts else losses[0]

    def _micro_batches(self, inputs: Any, targets: Any) -> list[tuple[Any, Any, float]]:
        """Cut this rank's share into parts of nearly equal size; return each and its part of the whole batch.

        Raises:
            InfeasibleError: the batch has something other than tensors with a row for each sample.
        """
        count = self._settings.accumulation_steps
        if count == 1:
            return [(inputs, targets, self._part)]
        samples, leaves = min(num_samples(targets), self._most_samples), tree_leaves((inputs, targets))
        if any(not isinstance(leaf, Tensor) or leaf.shape[:1] != (samples,) for leaf in leaves):
            found = ", ".join(f"{tuple(leaf.shape)}" if isinstance(leaf, Tensor) else f"{leaf!r}" for leaf in leaves)
            what = f"a batch must consist of tensors with a row for each of its {samples} samples; it has {found}"
            raise InfeasibleError(f"accumulation_steps {count}: {what[:MOST_CHARACTERS]}")
        slices = [slice(*Share(number, count).within(samples)) for number in range(count)]
        shares = [self._part * (each.stop - each.start) / samples for each in slices]
        return [(*_rows(inputs, targets, at=each), share) for each, share in zip(slices, shares, strict=True)]

    def _unsynchronised(self) -> AbstractContextManager[object]:
        """Return the context of gradients that later ones are added to, before the ranks exchange them."""
        return nullcontext()

    def _forward_and_backward(self, inputs: Any, targets: Any, part: float, timeline: Timeline) -> Tensor:
        with autocast(self._settings, self._device):
            outputs = self._forward(arranged(inputs, self._settings))
            loss = loss_of(outputs, targets, self._settings, part)
        timeline.mark("forward")
        self._backward(self._scaler.scale(loss), timeline)
        return loss.detach()

    def _backward(self, loss: Tensor, timeline: Timeline) -> None:
        torch.autograd.backward(loss)
        timeline.mark("backward")

    def _update(self, timeline: Timeline) -> None:
        """Change the weights by their gradients, which are those of the whole batch."""
        if most := self._settings.max_gradient_norm:
            self._scaler.unscale_(self._optimizer)
            weights = [weight for group in self._optimizer.param_groups for weight in group["params"]]
            norm = get_total_norm([weight.grad for weight in weights if weight.grad is not None]).to(self._device)
            if self.IN_PARTS:
                timeline.mark("update")
                squares = norm.square()
                dist.all_reduce(squares)
                norm = squares.sqrt()
                timeline.mark("communicate")
            clip_grads_with_norm_(weights, most, norm)
        self._scaler.step(self._optimizer)
        self._scaler.update()
        timeline.mark("update")

    def set_learning_rate(self, value: float) -> None:
        """Set the learning rate of the following steps."""
        for group in self._optimizer.param_groups:
            group["lr"] = value

    def gather(self) -> None:
        """Synchronise `model` on all ranks; all call it before evaluation and checkpoints.

        The ranks of this class have equal weights, and get the running statistics of rank 0.
        """
        if dist.is_initialized():
            for buffer in self.model.buffers():
                dist.broadcast(buffer, src=0)

    def metrics(self) -> dict[str, float]:
        """Return the strategy's own metrics of the whole job so far. All ranks call it; rank 0's result is used."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Return the complete state of network, optimizer and gradient scaler, in a form that all strategies can load.

        All ranks call it after `gather`; rank 0's result is saved. See `optimizer_state`.
        """
        return {
            "model": self.model.state_dict(),
            "optimizer": optimizer_state(self.model, self._optimizer),
            "scaler": self._scaler.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a complete state; all ranks call it.

        Raises:
            RuntimeError, KeyError, ValueError: the state is of another network or optimizer.
        """
        self.model.load_state_dict(state["model"])
        load_optimizer_state(self.model, self._optimizer, state["optimizer"])
        if state["scaler"]:  # empty where it is not in use
            self._scaler.load_state_dict(state["scaler"])


def _rows(*trees: Any, at: slice) -> Any:
    return tree_map(lambda leaf: leaf[at], trees)


def autocast(settings: Settings, device: torch.device) -> AbstractContextManager[object]:
    """Return the context in which the network computes in the settings' precision."""
    precision = precision_of(settings.precision, device.type)
    return nullcontext() if precision == "fp32" else torch.autocast(device.type, DTYPES[precision])


def arranged(inputs: Any, settings: Settings) -> Any:
    """Convert batches of pictures, which have four axes, to the settings' memory format."""
    memory_format = FORMATS[settings.memory_format]
    return tree_map(lambda x: x.contiguous(memory_format=memory_format) if x.ndim == 4 else x, inputs)


def in_floats(outputs: Any) -> Any:
    """Convert outputs of 16 bits to fp32."""
    return tree_map(lambda x: x.float() if isinstance(x, Tensor) and x.dtype in DTYPES.values() else x, outputs)


def optimizer(model: nn.Module, settings: Settings) -> torch.optim.Optimizer:
    """Build SGD with Nesterov momentum, or AdamW. Weights decay; normalisation, biases and frozen weights do not."""
    rate: float | Tensor = settings.learning_rate
    device = next(model.parameters(), torch.empty(0)).device  # a stage of a pipeline may have no weights
    if captured := captures(settings, device.type):  # a graph repeats numbers of its capture, but reads tensors anew
        rate = torch.tensor(settings.learning_rate, device=device)
    trained = [p for p in model.parameters() if p.requires_grad]
    weights = [p for p in trained if p.ndim > 1]
    others = [p for p in trained if p.ndim <= 1]
    groups = [{"params": weights, "weight_decay": settings.weight_decay}, {"params": others, "weight_decay": 0.0}]
    momentum, fused = settings.momentum, settings.fused_optimizer
    if settings.optimizer == "adamw":
        betas = (momentum, 0.999)
        return torch.optim.AdamW(groups, lr=rate, betas=betas, fused=fused, capturable=captured)
    sgd = torch.optim.SGD(groups, lr=rate, momentum=momentum, nesterov=momentum > 0, fused=fused)
    if momentum:
        sgd.register_step_pre_hook(_zero_new_momentum)
    return sgd


def _zero_new_momentum(sgd: torch.optim.Optimizer, *_: Any) -> None:
    """Create missing momentum as zeros: the fused kernel leaves its own uninitialised if the first step overflows."""
    for group in sgd.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None and sgd.state[parameter].get("momentum_buffer") is None:
                sgd.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)


def loss_of(outputs: Any, targets: Any, settings: Settings, part: float) -> Tensor:
    """Return the workload's loss of these samples, as `part` of the mean over the whole batch.

    The number of targets does not tell how many samples there are: a file may put together those of all samples.
    """
    mean = workload_of(settings).loss(outputs, targets, settings)
    return mean if part == 1 else mean * part


def optimizer_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, dict[str, Any]]:
    """Return the optimizer's state by parameter name in `model`, in the same form for all strategies."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    return {names[parameter]: dict(known) for parameter, known in optimizer.state.items()}


def load_optimizer_state(model: nn.Module, optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Load the state of the parameters that this optimizer has; those that never had a gradient have none."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    order = [names[parameter] for group in optimizer.param_groups for parameter in group["params"]]
    known = {i: dict(state[name]) for i, name in enumerate(order) if name in state}
    optimizer.load_state_dict({**optimizer.state_dict(), "state": known})


def learning_rate(step: int, total_steps: int, settings: Settings) -> float:
    """Learning rate of step 0, 1, ...: linear up to the highest during the warm-up, then as the schedule says."""
    highest, warmup_steps = settings.learning_rate, max(1, round(settings.warmup_fraction * total_steps))
    if step < warmup_steps:
        return highest * (step + 1) / warmup_steps
    left = (total_steps - step) / (total_steps - warmup_steps)
    factors = {"linear": left, "cosine": (1 - math.cos(math.pi * left)) / 2, "constant": 1.0}
    return highest * factors[settings.learning_rate_schedule]
