"""What a configuration says, typed: the door for the dictionaries and command lines that reach a trainable."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from trainables.contract import Parameter, Scalar

Precision = Literal["auto", "fp32", "bf16", "fp16"]

TYPES: dict[str, Any] = {"int": int, "float": float, "str": str, "bool": bool}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A configuration of VGG19's training. Meanings and defaults: `vgg19_cifar10.PARAMETERS`."""

    batch_size: int
    learning_rate: float
    optimizer: Literal["sgd", "adamw"]
    momentum: float
    weight_decay: float
    label_smoothing: float
    seed: int
    width: float
    head: Literal["average_pooling", "fully_connected"]
    strategy: str
    world_size: int | None
    server: Literal["synchronous", "asynchronous"]
    batch_norm: Literal["local", "synchronised"]
    num_microbatches: int
    schedule: Literal["gpipe", "1f1b"]
    placement: Literal["pack", "spread"]
    threads: int | None
    precision: Precision
    memory_format: Literal["contiguous", "channels_last"]
    loader: Literal["workers", "memory", "device"]
    num_workers: int
    pin_memory: bool
    conv_kernel: Literal["library", "gemm", "auto"]
    allocator: Literal["system", "retain"]
    fused_optimizer: bool
    flush_denormals: bool
    compile: bool
    cuda_graphs: bool
    trace_steps: int


def checked(config: Mapping[str, Any], parameters: Mapping[str, Parameter]) -> dict[str, Any]:
    """All parameters, with defaults for those that `config` leaves out.

    Raises:
        ValueError: an unknown name, with the nearest one, or a value that its parameter does not allow.
    """
    for name in config:
        if name not in parameters:
            raise ValueError(f'no parameter "{name}"{nearest(name, list(parameters))}')
    given = {name: _checked(name, value, parameters[name]) for name, value in config.items()}
    return {name: given.get(name, parameter.default) for name, parameter in parameters.items()}


def nearest(name: str, names: Sequence[str]) -> str:
    """A hint at the name that was perhaps meant, or nothing."""
    near = difflib.get_close_matches(name, names, 1, cutoff=0.5)
    return f'; did you mean "{near[0]}"?' if near else f"; there are {', '.join(names)}"


def parsed(text: str) -> Scalar | None:
    """A value as written on a command line: 128, 0.1, true, null, or a word."""
    words: dict[str, Scalar | None] = {"true": True, "false": False, "null": None, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _checked(name: str, value: Any, parameter: Parameter) -> Any:
    if value is None and parameter.default is None:
        return None
    if parameter.type == "float" and type(value) is int:
        value = float(value)
    if type(value) is not TYPES[parameter.type]:
        raise ValueError(f"{name}: {value!r} is no {parameter.type}")
    if parameter.choices and value not in parameter.choices:
        raise ValueError(f"{name}: {value!r} is none of {', '.join(map(str, parameter.choices))}")
    low, high = parameter.low, parameter.high
    if low is not None and not value >= low:
        raise ValueError(f"{name}: {value!r} is below {low:g}")
    if high is not None and not value <= high:
        raise ValueError(f"{name}: {value!r} is above {high:g}")
    return value
