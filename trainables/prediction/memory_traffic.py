"""Memory traffic of a training step: bytes that its operators read and write, counted on fake tensors.

Each operator is assumed to read its inputs and write its outputs once, with no cache in between.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from trainables.build import shapes_of_network
from trainables.machine.measurement_cache import Figures, cached_measurement
from trainables.plan import Share
from trainables.prediction.countable import counted_or_none
from trainables.prediction.memory_need import plain
from trainables.prediction.tensor_memory import materialize
from trainables.sample_shape import SampleShape
from trainables.settings import Settings
from trainables.stages import Timeline
from trainables.step import Step
from trainables.workload import workload_of

SIZES = 2, 128  # of parts of a batch, which are counted; the traffic is the line through both
TOUCH_NOTHING = ("empty", "device", "detach")  # parts of names of operators that neither read nor write


@dataclass(frozen=True)
class MemoryTraffic:
    """Bytes that one process reads and writes."""

    per_step: int  # for any batch size: weights, their gradients, the optimizer's state
    per_sample: int

    def of_step(self, samples: int, networks: int = 1) -> int:
        """Return the bytes of a step with `samples` samples in all, divided among `networks` copies of the network."""
        return networks * self.per_step + self.per_sample * samples


def memory_traffic(settings: Settings, shape: SampleShape, device: torch.device) -> MemoryTraffic | None:
    """Count the traffic of one process's step once (2 s), and store it; None: the network cannot be counted."""
    counted = replace(plain(settings, device), cuda_graphs=False)
    return counted_or_none(lambda: _of_plain(counted, shape, device.type), settings)


@cache
def _of_plain(settings: Settings, shape: SampleShape, device_type: str) -> MemoryTraffic:
    versions = {"torch": torch.__version__, "kernels": workload_of(settings).VERSION, "source": settings.source}
    source = {**asdict(settings), **versions, "shape": shape.key, "device": device_type, "workload": settings.workload}
    return MemoryTraffic(
        **cached_measurement("traffic", source, lambda _: _line(settings, shape, torch.device(device_type)))
    )


def _line(settings: Settings, shape: SampleShape, device: torch.device) -> Figures:
    few, many = (size * settings.accumulation_steps for size in SIZES)
    of_few, of_many = (_counted(settings, shape, batch, device) for batch in (few, many))
    per_sample = (of_many - of_few) // (many - few)
    return {"per_step": of_few - few * per_sample, "per_sample": per_sample}


def _counted(settings: Settings, shape: SampleShape, batch: int, device: torch.device) -> int:
    model = shapes_of_network(settings, shape)
    counter = _Counter()
    with FakeTensorMode(allow_non_fake_inputs=True):  # constants that a file made itself
        materialize(model, device)
        step = Step(model, model, replace(settings, batch_size=batch), device, Share())
        inputs, targets = shape.empty(batch, device)
        step(inputs, targets, Timeline(device))  # creates the optimizer's state
        with counter:
            step(inputs, targets, Timeline(device))
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
    """Arguments written by an operator without result, such as an optimizer's."""
    parameters = zip(func._schema.arguments, args, strict=False)
    return [value for parameter, value in parameters if parameter.alias_info and parameter.alias_info.is_write]
