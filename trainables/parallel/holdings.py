"""What each process of a strategy holds of a training, in parts of what one process alone would hold."""

from __future__ import annotations

from dataclasses import dataclass

from trainables.settings import Settings


@dataclass(frozen=True)
class Holding:
    """Parts of the whole; of activations, those of the pictures that one process reads."""

    parameters: float = 1.0
    gradients: float = 1.0
    optimizer: float = 1.0
    activations: float = 1.0
    messages: float = 0.0  # on their way or being made, in parts of the gradients


def holdings(settings: Settings, processes: int) -> list[Holding]:
    """One for each process.

    A GPU of `data_parallel` counts as a process; the first one, which has most, stands for all.
    """
    part = 1 / processes
    match settings.strategy:
        case "single":
            return [Holding()]
        case "data_parallel":
            return [Holding(messages=1.0)]  # the sum of the others' gradients
        case "ring_allreduce":
            return [Holding(messages=1.0)] * processes  # the buckets
        case "parameter_server":
            arriving = 2.0 * (processes - 1) if settings.server == "synchronous" else 0.0  # and side by side
            server = Holding(activations=0.0, messages=arriving)
            return [server, *[Holding(optimizer=0.0)] * (processes - 1)]
        case "pipeline":
            stage = Holding(gradients=part, optimizer=part, activations=_in_flight(settings, processes))
            return [stage] * processes
        case "fsdp":
            # shards, the whole network for evaluation, its whole state for checkpoints, and the largest layer gathered
            return [Holding(1.0 + part, part, 1.0 + part, messages=0.5)] * processes
    return [Holding(messages=2.0)] * processes  # first and lasting buckets, what travels


def _in_flight(settings: Settings, processes: int) -> float:
    """Of a batch, cut into stages: with gpipe all micro-batches wait for their way back, with 1f1b one per stage."""
    return min(1.0, processes / settings.num_microbatches) if settings.schedule == "1f1b" else 1.0
