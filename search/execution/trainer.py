"""Ray Train run of one worker group, whose ranks talk by `torch.distributed`.

Like Ray's `TorchTrainer`, but only the workers import torch: with Ray's `TorchConfig` the worker pool, where the
controller of Ray Train runs, imports it too, before the first worker starts.
"""

from __future__ import annotations

import contextlib
import os
import socket
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import ray
import ray.actor
import ray.util
from ray.exceptions import GetTimeoutError
from ray.train import ControllerError, FailureConfig, RunConfig, ScalingConfig, WorkerGroupError
from ray.train.backend import Backend, BackendConfig

from search.execution.group import START_TIMEOUT_SECONDS
from search.execution.ray_hooks import trainer_class
from search.execution.worker_environment import runtime_environment
from search.execution.worker_loop import run_worker_loop
from trainables.contract import Layout, group_timeout_seconds

LEAVE_TIMEOUT_SECONDS = 10.0
# Ray Train reads these in the process that starts groups, which on a joined cluster has not the driver's environment,
# and passes them on.
os.environ.update(
    {
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "1",  # notice a dead worker within about a second
        "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": f"{START_TIMEOUT_SECONDS}",  # wait for nodes as long as the pool
        "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",  # saves a process per group that wakes 100 times a second
        "RAY_TRAIN_ENABLE_CONTROLLER_STRUCTURED_LOGGING": "0",  # controllers of one process that set it up may deadlock
    }
    | os.environ
)


def run_group(
    pool: ray.actor.ActorHandle,
    number: int,
    layout: Layout,
    cpus_per_process: float,
    label_selector: dict[str, str] | None,
    storage: str,
    timeout_seconds: float,
    hooks: bool,
) -> tuple[int | None, BaseException | None]:
    """Run a worker group until it ends; return the rank that ended it, if one did, and the error, if there was one.

    Raises:
        Exception: of any kind, where the group could not be started.
    """
    gpus = layout.gpus_per_process
    backend = ProcessGroup("nccl" if gpus else "gloo", group_timeout_seconds(gpus > 0, timeout_seconds))
    trainer = trainer_class(hooks)(
        run_worker_loop,
        train_loop_config={"pool": pool, "group": number, "layout": layout, "timeout_seconds": timeout_seconds},
        # a single process needs no process group, and imports torch only if its trainable does
        backend_config=backend if layout.processes > 1 else None,
        scaling_config=ScalingConfig(
            num_workers=layout.processes,
            placement_strategy=layout.placement.upper(),
            use_gpu=gpus > 0,
            resources_per_worker={"CPU": cpus_per_process, **({"GPU": gpus} if gpus else {})},
            label_selector=label_selector,
        ),
        run_config=RunConfig(
            name=f"group-{number}",
            storage_path=storage,
            failure_config=FailureConfig(max_failures=0, controller_failure_limit=0),  # the pool starts others
            worker_runtime_env=runtime_environment(on_this_machine=label_selector is None),
        ),
    )
    try:
        trainer.fit()
    except WorkerGroupError as error:
        rank, cause = next(iter(error.worker_failures.items()), (0, error))
        # Ray Train wraps the death of a process in "A worker health check failed."
        return rank, getattr(cause, "health_check_failure", cause)
    except ControllerError as error:  # says no more than that there was one
        return None, error.controller_failure
    return None, None


@dataclass(frozen=True)
class ProcessGroup(BackendConfig):  # type: ignore[misc]  # Ray has no types
    """Process group of `torch.distributed`: its library, and the timeout of its operations."""

    backend: str  # nccl or gloo
    timeout_seconds: float

    @property
    def backend_cls(self) -> type[Backend]:
        """Class whose methods Ray Train calls when a group starts and ends."""
        return _OnWorkers


class _OnWorkers(Backend):  # type: ignore[misc]
    share_cuda_visible_devices = True  # every rank sees all GPUs of its node; LOCAL_RANK says which one is its own

    def on_start(self, worker_group: Any, backend_config: ProcessGroup) -> None:
        address, port = worker_group.execute_single(0, _free_address)
        environment = {"MASTER_ADDR": address, "MASTER_PORT": str(port), "WORLD_SIZE": str(len(worker_group))}
        joining = [
            worker_group.execute_single_async(rank, _join, backend_config, environment | {"RANK": str(rank)})
            for rank in range(len(worker_group))
        ]
        ray.get(joining)

    def on_shutdown(self, worker_group: Any, backend_config: ProcessGroup) -> None:
        with contextlib.suppress(GetTimeoutError):  # the processes end all the same
            ray.get(worker_group.execute_async(_leave), timeout=LEAVE_TIMEOUT_SECONDS)


def _free_address() -> tuple[str, int]:
    """Return the address of this node and a free port."""
    address = ray.util.get_node_ip_address()
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as free:
        free.bind(("", 0))
        return address, free.getsockname()[1]


def _join(backend: ProcessGroup, environment: dict[str, str]) -> None:
    import ray.train
    from torch import distributed

    context = ray.train.get_context()
    os.environ |= environment
    os.environ["LOCAL_RANK"] = str(context.get_local_rank())
    os.environ["LOCAL_WORLD_SIZE"] = str(context.get_local_world_size())
    os.environ["NODE_RANK"] = str(context.get_node_rank())
    distributed.init_process_group(backend.backend, timeout=timedelta(seconds=backend.timeout_seconds))


def _leave() -> None:
    from torch import distributed

    if distributed.is_initialized():
        distributed.destroy_process_group()
