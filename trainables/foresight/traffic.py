"""How many bytes the operators of a training step read and write, counted on tensors that have no numbers.

As if each operator read what it is given and wrote what it returns once, and no cache kept anything in between.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from trainables.build import shapes_of_network
from trainables.foresight.liveness import materialize, unread_batch
from trainables.foresight.memory import plain
from trainables.machine.kept import Figures, kept
from trainables.network import autotune
from trainables.settings import Settings
from trainables.stages import Timeline
from trainables.step import Step

BATCHES = 2, 128  # that are counted: a line goes through both
TOUCH_NOTHING = ("empty", "device", "detach")  # in the names of operators that neither read nor write


@dataclass(frozen=True)
class Traffic:
    """Bytes that one process reads and writes."""

    per_step: int  # whatever the batch: of weights, their gradients, the optimizer's state
    per_image: int

    def of_step(self, images: int, networks: int = 1) -> int:
        """With so many pictures in all, trained on by as many copies of the network."""
        return networks * self.per_step + self.per_image * images


def traffic(settings: Settings, num_classes: int, device: torch.device) -> Traffic:
    """Of the plain step of one process; counted once (2 s) and kept."""
    return _of_plain(plain(settings, device), num_classes, device.type)


@cache
def _of_plain(settings: Settings, num_classes: int, device_type: str) -> Traffic:
    versions = {"torch": torch.__version__, "kernels": autotune.VERSION}
    source = {**asdict(settings), **versions, "num_classes": num_classes, "device": device_type}
    return Traffic(**kept("traffic", source, lambda _: _line(settings, num_classes, torch.device(device_type))))


def _line(settings: Settings, num_classes: int, device: torch.device) -> Figures:
    few, many = BATCHES
    of_few, of_many = (_counted(settings, num_classes, batch, device) for batch in BATCHES)
    per_image = (of_many - of_few) // (many - few)
    return {"per_step": of_few - few * per_image, "per_image": per_image}


def _counted(settings: Settings, num_classes: int, batch: int, device: torch.device) -> int:
    model = shapes_of_network(settings, num_classes)
    counter = _Counter()
    with FakeTensorMode():
        materialize(model, device)
        step = Step(model, model, settings, device)
        images, labels = unread_batch(batch, device)
        step(images, labels, Timeline(device))  # the next one has the optimizer's state
        with counter:
            step(images, labels, Timeline(device))
    return counter.bytes


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not func.is_view and not any(word in str(func) for word in TOUCH_NOTHING):
            written = result if func._schema.returns else _changed(func, args)
            leaves = tree_leaves((args, kwargs, written))
            self.bytes += sum(leaf.numel() * leaf.element_size() for leaf in leaves if isinstance(leaf, Tensor))
        return result


def _changed(func: Any, args: Any) -> list[Any]:
    """What an operator that returns nothing writes, such as an optimizer's."""
    parameters = zip(func._schema.arguments, args, strict=False)
    return [value for parameter, value in parameters if parameter.alias_info and parameter.alias_info.is_write]
