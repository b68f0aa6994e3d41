"""Verdict on a trial: its bottleneck, from its metrics alone, without torch.

A step is load + transfer + forward + backward + communicate + update. What would help is measured (`search.advise`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from trainables.contract import STAGES, Bound, Resources, Verdict
from trainables.machine.processor import precision_of
from trainables.settings import Settings
from trainables.strategy_table import captures
from trainables.vgg19_settings import Vgg19Settings

CLOCK_SECONDS = 1e-9  # resolution of the clocks
HOST_BOUND, LOW = 0.9, 0.25  # host's time over the step's; fraction of the ceiling below which a GPU waits for it
MEMORY_BOUND = 0.4  # of the memory's rate: training below it is not memory-bound


def explain(settings: Settings, metrics: Mapping[str, float], resources: Resources) -> Verdict | None:
    """Return what bounds a step, and the share of the stage that it belongs to; None: no step was profiled."""
    if (seconds := _stage_seconds(metrics)) is None:
        return None
    settings = replace(settings, precision=precision_of(settings.precision, "cuda" if resources.gpus else "cpu"))
    bound, share = _largest_share(seconds)
    if bound == "compute":
        bound = _within_compute(settings, metrics, math.fsum(seconds.values()), resources)
    return Verdict(bound, share, f"{share:.0%} of each step {_words(settings, metrics, bound)}")


def _within_compute(
    settings: Settings, metrics: Mapping[str, float], step_seconds: float, resources: Resources
) -> Bound:
    """Return which of arithmetic, memory and the host that launches operators bounds a step.

    Of the roofline's two limits memory bounds the step if it is nearer to its limit than arithmetic is.
    """
    bandwidth, arithmetic = _known(metrics, "fraction_of_bandwidth"), _known(metrics, "fraction_of_ceiling")
    host = _known(metrics, "host_seconds")
    if arithmetic is None:
        return "compute"
    waits = host is not None and host >= HOST_BOUND * step_seconds and arithmetic < LOW
    if resources.gpus and waits and not captures(settings, "cuda"):
        return "host"
    return "memory" if bandwidth is not None and bandwidth > max(arithmetic, MEMORY_BOUND) else "compute"


def _known(metrics: Mapping[str, float], name: str) -> float | None:
    value = metrics.get(name, math.nan)
    return value if math.isfinite(value) else None


def bottleneck(metrics: Mapping[str, float]) -> Verdict | None:
    """Return the stage with the largest share of a step of any training."""
    if (seconds := _stage_seconds(metrics)) is None:
        return None
    bound, share = _largest_share(seconds)
    words = {
        "input": "waits for data",
        "transfer": "copies the batch to the GPU",
        "communication": "waits for the gradients of other processes",
    }
    return Verdict(bound, share, f"{share:.0%} of each step {words.get(bound, 'is training on the batch')}")


def _stage_seconds(metrics: Mapping[str, float]) -> dict[str, float] | None:
    seconds: dict[str, float] = {stage: metrics.get(f"{stage}_seconds", 0.0) for stage in STAGES}
    if not all(math.isfinite(s) and s >= 0 for s in seconds.values()) or math.fsum(seconds.values()) < CLOCK_SECONDS:
        return None
    return seconds


def _largest_share(seconds: Mapping[str, float]) -> tuple[Bound, float]:
    """Return what bounds a step, and its share."""
    parts: dict[Bound, float] = {
        "input": seconds["load"],
        "transfer": seconds["transfer"],
        "communication": seconds["communicate"],
        "compute": seconds["forward"] + seconds["backward"] + seconds["update"],
    }
    bound = max(parts, key=lambda name: parts[name])
    return bound, parts[bound] / math.fsum(parts.values())


def _words(settings: Settings, metrics: Mapping[str, float], bound: Bound) -> str:
    fraction, by_sample = _known(metrics, "fraction_of_ceiling"), True
    if isinstance(settings, Vgg19Settings):
        by_sample = settings.loader == "workers"
    match bound:
        case "input" if settings.loader_processes:
            more = "es" if settings.num_workers != 1 else ""
            return f"waits for data from {settings.num_workers} loader process{more}"
        case "input" if by_sample:
            return "waits for data, which the training process itself loads, a sample at a time"
        case "input":
            return "waits for data, which the training process gathers"
        case "transfer":
            return "copies the batch to the GPU"
        case "communication":
            return "waits for the gradients of other processes"
        case "memory":
            bandwidth = _known(metrics, "fraction_of_bandwidth")
            return f"moves bytes, at {bandwidth:.0%} of the rate at which memory is copied here"
        case "host":
            return f"is launched by the host, for which the GPU waits, at {fraction:.0%} of its ceiling"
    reached = "" if fraction is None else f", at {fraction:.0%} of the ceiling of {settings.precision} here"
    return f"is forward, backward and update{reached}"
