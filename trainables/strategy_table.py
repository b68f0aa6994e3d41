"""The table of strategies, one row each. It is importable without torch; a row's module trains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from trainables.contract import Scalar, Strategy
from trainables.settings import Settings

MIB = 2**20


@dataclass(frozen=True)
class MemoryShare:
    """Memory of one process as fractions of what one process alone would hold.

    Activations are fractions of those of the samples that one process reads, messages (in flight or being made) of the
    gradients.
    """

    parameters: float = 1.0
    gradients: float = 1.0
    optimizer: float = 1.0
    activations: float = 1.0
    messages: float = 0.0


MemoryShares = Callable[[Settings, int], list[MemoryShare]]  # one for each of so many processes


@dataclass(frozen=True, kw_only=True)
class StrategyRow(Strategy):
    """A strategy as layouts and memory prediction see it; a module `strategies.StrategyModule` computes its steps."""

    module: str
    memory_shares: MemoryShares
    fewest_processes: int = 1  # 1: also runs alone, as the baseline of its own scaling
    all_gpus: bool = False  # the only process uses all GPUs of its node, and needs one
    micro_batches: bool = False  # a batch is cut into `num_microbatches` equal parts
    bucket_bytes: int = 0  # gradients are collected in vectors of about this size, which are sent in place on GPUs
    readers: Callable[[int], Sequence[int]] = range  # ranks that read equal shares of each batch, of so many processes
    unsupported: Mapping[str, Scalar] = field(default_factory=dict)  # values of parameters
    eager_steps: int = 3  # before a step is captured: they choose kernels and allocate buffers


def _equal(share: MemoryShare) -> MemoryShares:
    return lambda settings, processes: [share] * processes


def _fsdp_shares(settings: Settings, processes: int) -> list[MemoryShare]:
    """Shards, the whole network for evaluation, its whole state for checkpoints, and the largest layer gathered."""
    part = 1 / processes
    return [MemoryShare(1.0 + part, part, 1.0 + part, messages=0.5)] * processes


def _parameter_server_shares(settings: Settings, processes: int) -> list[MemoryShare]:
    # a synchronous server holds the gradients of all workers as they arrive, and stacks them
    messages = 2.0 * (processes - 1) if settings.server == "synchronous" else 0.0
    return [MemoryShare(activations=0.0, messages=messages), *[MemoryShare(optimizer=0.0)] * (processes - 1)]


def _pipeline_shares(settings: Settings, processes: int) -> list[MemoryShare]:
    part = 1 / processes
    # activations of all micro-batches wait for backward with gpipe, those of one per stage with 1f1b
    waiting = min(1.0, processes / settings.num_microbatches) if settings.schedule == "1f1b" else 1.0
    return [MemoryShare(gradients=part, optimizer=part, activations=waiting)] * processes


STRATEGIES = {
    "single": StrategyRow(
        help="one process on one device",
        module="trainables.strategies.single",
        one_process=True,
        memory_shares=_equal(MemoryShare()),
    ),
    "data_parallel": StrategyRow(
        help="one process on all GPUs, each with a copy of the network",
        module="trainables.strategies.data_parallel",
        one_process=True,
        all_gpus=True,
        memory_shares=_equal(MemoryShare(messages=1.0)),  # the fullest GPU: the sum of the others' gradients
        unsupported={"cuda_graphs": True, "compile": True, "batch_norm": "synchronised"},
    ),
    "ddp": StrategyRow(
        help="a network in each process, gradients averaged by PyTorch",
        module="trainables.strategies.ddp",
        settings=("batch_norm",),
        memory_shares=_equal(MemoryShare(messages=2.0)),  # the first and the lasting buckets
        bucket_bytes=25 * MIB,  # DDP's default
        eager_steps=11,  # DDP times its first ten steps with events, which a capture must not contain
    ),
    "fsdp": StrategyRow(
        help="as ddp, with weights, gradients and optimizer sharded",
        module="trainables.strategies.fsdp",
        settings=("batch_norm",),
        memory_shares=_fsdp_shares,
        unsupported={"cuda_graphs": True, "compile": True, "precision": "fp16"},
    ),
    "ring_allreduce": StrategyRow(
        help="as ddp, with a ring all-reduce written out",
        module="trainables.strategies.ring_allreduce",
        settings=("batch_norm",),
        memory_shares=_equal(MemoryShare(messages=1.0)),  # the buckets
        bucket_bytes=4 * MIB,
        unsupported={"cuda_graphs": True},
    ),
    "parameter_server": StrategyRow(
        help="one process updates the weights, the others compute gradients",
        module="trainables.strategies.parameter_server",
        settings=("server",),
        fewest_processes=2,
        readers=lambda processes: range(min(1, processes - 1), processes),  # all but the server
        memory_shares=_parameter_server_shares,
        unsupported={"cuda_graphs": True, "precision": "fp16", "batch_norm": "synchronised"},
    ),
    "pipeline": StrategyRow(
        help="consecutive layers in each process, micro-batches pass through them",
        module="trainables.strategies.pipeline",
        settings=("num_microbatches", "schedule"),
        fewest_processes=2,
        micro_batches=True,
        readers=lambda processes: range(1),
        memory_shares=_pipeline_shares,
        unsupported={"cuda_graphs": True, "compile": True, "precision": "fp16", "batch_norm": "synchronised"},
    ),
}


def captures(settings: Settings, device_type: str) -> bool:
    """Return whether the step is to be captured as a CUDA graph, with `auto` resolved for a device of this type."""
    if settings.cuda_graphs != "auto":
        return settings.cuda_graphs
    # a graph repeats what the device did, not the Python code of a user's file, which may do other things in each step
    own_code = settings.workload.endswith(".py")
    supported = STRATEGIES[settings.strategy].unsupported.get("cuda_graphs") is not True
    one_part = settings.accumulation_steps == 1
    return device_type == "cuda" and settings.fused_optimizer and supported and one_part and not own_code
