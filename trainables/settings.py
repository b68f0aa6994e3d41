"""Parameters of every training, one row each: type, default, limits and help."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from types import UnionType
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from trainables.contract import Affects, Parameter, Scalar, Strategy

Precision = Literal["auto", "fp32", "bf16", "fp16"]


def parameter(
    default: Scalar | None, help: str, low: float | None = None, high: float | None = None, affects: Affects = "all"
) -> Any:
    """Declare a field of `Settings`. Its annotation gives the type and, as a Literal, the choices."""
    return field(default=default, metadata={"help": help, "low": low, "high": high, "affects": affects})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A configuration of any training. A subclass adds the parameters of one workload.

    `parameters_of` derives `Trainable.PARAMETERS` from these rows.
    """

    workload: ClassVar[str] = ""  # module of the workload, or the path of a file that defines one
    source: ClassVar[str] = ""  # digest of such a file

    batch_size: int = parameter(128, "samples per step, over all processes", low=1)
    epochs: int | None = parameter(
        None, "length of the training, on which its schedule depends; null: that of the run", low=1, affects="trained"
    )
    learning_rate: float = parameter(0.1, "highest rate, reached after the warm-up", low=1e-8, affects="trained")
    warmup_fraction: float = parameter(
        0.2, "part of all steps in which the learning rate rises to its highest", low=0.0, high=1.0, affects="trained"
    )
    learning_rate_schedule: Literal["linear", "cosine", "constant"] = parameter(
        "linear", "learning rate after the warm-up: a straight line or a cosine to zero, or constant", affects="trained"
    )
    accumulation_steps: int = parameter(
        1,
        "parts into which each process cuts its samples of a step, to take less memory; the gradients of all are added"
        " before the update, and batch normalisation sees one part at a time",
        low=1,
    )
    max_gradient_norm: float = parameter(
        0.0, "norm of all gradients together, to which those of a step are scaled down; 0: never", low=0.0
    )
    optimizer: Literal["sgd", "adamw"] = parameter("sgd", "sgd uses Nesterov momentum")
    momentum: float = parameter(0.9, "sgd: momentum; adamw: first beta", low=0.0, high=0.9999, affects="trained")
    weight_decay: float = parameter(
        5e-4, "decay of weights; normalisation and biases do not decay", low=0.0, affects="trained"
    )
    seed: int = parameter(
        0, "seed of weights, order, augmentation and dropout; not of the validation split", low=0, affects="trained"
    )
    strategy: str = parameter("single", "how devices share the work")
    world_size: int | None = parameter(None, "processes of a strategy with several; null: one per GPU, or two", low=1)
    server: Literal["synchronous", "asynchronous"] = parameter(
        "synchronous", "parameter_server: one update with all gradients of a step, or one with each as it arrives"
    )
    batch_norm: Literal["local", "synchronised"] = parameter(
        "local", "statistics of each process's samples, or of the whole batch"
    )
    num_microbatches: int = parameter(
        4, "equal parts into which pipeline cuts a batch; with 1 its stages work in turn", low=1
    )
    schedule: Literal["gpipe", "1f1b"] = parameter(
        "gpipe", "pipeline: all micro-batches forward, then all backward; or each backward early", affects="probed"
    )
    placement: Literal["pack", "spread"] = parameter(
        "pack", "processes on few nodes of a cluster, or on many", affects="probed"
    )
    threads: int | None = parameter(None, "threads per process; null: all its cores", low=1, affects="probed")
    precision: Precision = parameter(  # noqa: RUF009
        "auto", "fp32, or autocast to 16 bits; auto: bf16 if supported natively, else fp32"
    )
    memory_format: Literal["contiguous", "channels_last"] = parameter(
        "channels_last", "memory format of inputs with four axes, and of convolutions", affects="probed"
    )
    num_workers: int = parameter(0, "loader processes, per process of the trial", low=0, affects="probed")
    pin_memory: bool = parameter(False, "copy to the GPU from pinned memory", affects="probed")
    allocator: Literal["system", "retain"] = parameter(
        "retain", "host memory: retain keeps freed blocks until the trial ends", affects="probed"
    )
    fused_optimizer: bool = parameter(True, "update all weights with one kernel", affects="probed")
    flush_denormals: bool = parameter(False, "treat numbers below 1e-38 as zero, on a CPU", affects="probed")
    compile: bool = parameter(False, "compile the network with torch.compile before the first step", affects="probed")
    cuda_graphs: Literal["auto", True, False] = parameter(
        "auto",
        "replay the step as one CUDA graph, with fused_optimizer; auto: on a GPU, with a strategy that can, unless the"
        " network is of a user's file, whose Python code would no longer run",
        affects="probed",
    )
    trace_steps: int = parameter(
        0,
        "steps that torch.profiler records in trace.json in the trial's folder, those of a next epoch in trace_2.json",
        low=0,
        affects="probed",
    )

    @property
    def loader_processes(self) -> int:
        """Number of loader processes, per process of the trial."""
        return self.num_workers

    def that_shape_the_network(self) -> dict[str, Any]:
        """Return the workload's own settings on which the network's weights depend."""
        return {}

    def that_affect_rates(self) -> dict[str, Any]:
        """Return the settings on which measured rates may depend; traced steps are not measured."""
        affecting = (row.name for row in fields(self) if row.metadata.get("affects") in ("all", "probed"))
        return {name: getattr(self, name) for name in affecting if name != "trace_steps"}


def parameters_of(settings: type[Settings], strategies: Mapping[str, Strategy]) -> dict[str, Parameter]:
    """Return the rows as the contract's parameters, by name; `strategies` are the choices of `strategy`."""
    types = get_type_hints(settings)
    found = {}
    for row in fields(settings):
        kind = types[row.name]
        if isinstance(kind, UnionType):  # with None
            kind = get_args(kind)[0]
        choices = get_args(kind) if get_origin(kind) is Literal else ()
        name: Any = type(choices[0]).__name__ if choices else kind.__name__
        default: Any = row.default
        found[row.name] = Parameter(type=name, default=default, choices=choices, **row.metadata)
    names = "; ".join(f"{name}: {strategy.help}" for name, strategy in strategies.items())
    found["strategy"] = replace(found["strategy"], choices=strategies, help=f"{found['strategy'].help}; {names}")
    return found
